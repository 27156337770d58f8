"""Leases of bare metal: a real Ironic deploys the hosts, and is killed in the middle of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from client.actions import ActionClient
from domain.errors import Rejected, Superseded, Unavailable
from domain.leases.capacity import ResourceSize
from domain.leases.messages import DesiredHolding, HostFailed
from providers.leases.ironic import IronicHosts, IronicOptions
from providers.leases.ironic.nodes import IronicNode, NodeStep, next_step_to_hold, next_step_to_return
from tests.ironic import Ironic, ironic_running
from tests.patience import PATIENCE
from tests.stack import opened
from tests.test_leases.tenant import Tenant

RESERVATION = "project:p:lease:l:reservation:r1"


@pytest.fixture(scope="module")
async def ironic(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Ironic]:
    async with ironic_running(tmp_path_factory.mktemp("ironic")) as running:
        await running.enroll("h1", "h2", "h3")
        yield running


@pytest.fixture
async def hosts(ironic: Ironic) -> AsyncIterator[IronicHosts]:
    site = IronicHosts(IronicOptions.model_validate({"provider": "ironic", "url": ironic.url}))
    yield site
    for reservation in {tenant.reservation for tenant in await site.list_existing_objects("", ("", ""))}:
        await settle(site.take_back_hosts, reservation, 99)


async def settle(order: Any, *arguments: Any) -> None:
    """Gives an order until it is carried out, as an activity does."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await order(*arguments)
                return
            except Unavailable:
                await asyncio.sleep(0.1)


def holding(*names: str, version: int = 1, generation: int = 1, **more: Any) -> DesiredHolding:
    return DesiredHolding(
        token=f"{RESERVATION}#{generation}",
        generation=generation,
        reservation=RESERVATION,
        version=version,
        hosts={f"pool:metal:host:{name}": 1 for name in names},
        **{"whole": True, "size": ResourceSize(0, 0, 0), **more},
    )


async def test_a_reservation_gets_exactly_its_hosts_and_gives_them_back(ironic: Ironic, hosts: IronicHosts) -> None:
    await settle(hosts.set_reservation_hosts, holding("h1", "h2"))
    assert [await ironic.state(name) for name in ("h1", "h2", "h3")] == ["active", "active", "available"]
    held = await hosts.list_held_hosts([RESERVATION])
    assert [tenant.host for tenant in held] == ["pool:metal:host:h1", "pool:metal:host:h2"]
    await hosts.set_reservation_hosts(holding("h1", "h2"))  # repeated: nothing happens
    await settle(hosts.set_reservation_hosts, holding("h2", "h3", version=2))
    assert [await ironic.state(name) for name in ("h1", "h2", "h3")] == ["available", "active", "active"]
    await hosts.set_reservation_hosts(holding("h1", version=1))  # late: a later order decides
    assert [await ironic.state(name) for name in ("h1", "h2", "h3")] == ["available", "active", "active"]
    await settle(hosts.set_reservation_hosts, holding(version=3))
    assert [await ironic.state(name) for name in ("h1", "h2", "h3")] == ["available"] * 3
    assert await hosts.list_existing_objects("", ("", "")) == []
    assert (await ironic.read_node("h2"))["lessee"] is None


async def test_what_is_somebody_elses_is_not_touched(ironic: Ironic, hosts: IronicHosts) -> None:
    await settle(hosts.set_reservation_hosts, holding("h1"))
    other = DesiredHolding(
        token="project:p:lease:m:reservation:r1#5",
        generation=5,
        reservation="project:p:lease:m:reservation:r1",
        version=1,
        hosts={"pool:metal:host:h1": 1},
        whole=True,
        size=ResourceSize(0, 0, 0),
    )
    with pytest.raises(Rejected, match="still held by project:p:lease:l"):
        await hosts.set_reservation_hosts(other)
    with pytest.raises(Rejected, match="404"):
        await hosts.set_reservation_hosts(holding("h9", version=2))
    with pytest.raises(Rejected, match="whole hosts"):
        await hosts.set_reservation_hosts(holding("h2", version=2, whole=False))
    with pytest.raises(Superseded):
        await hosts.take_back_hosts(RESERVATION, 0)
    assert await ironic.state("h1") == "active"


async def test_a_node_in_maintenance_is_a_failed_host(ironic: Ironic, hosts: IronicHosts) -> None:
    await ironic.call("PUT", "/v1/nodes/h3/maintenance", json={"reason": "no fan"})
    try:
        with pytest.raises(HostFailed, match="in maintenance: no fan") as failed:
            await hosts.set_reservation_hosts(holding("h3"))
        assert failed.value.host == "pool:metal:host:h3"
    finally:
        await ironic.call("DELETE", "/v1/nodes/h3/maintenance")


def test_every_state_of_a_node_has_a_step() -> None:
    def node(state: str, lessee: str = "", instance: str = "", maintenance: bool = False) -> IronicNode:
        return IronicNode("h1", state, lessee, instance, maintenance, "", {})

    assert (
        next_step_to_hold(node("deploy failed"), "t") is NodeStep.UNDEPLOY
    )  # what another tenant left is cleaned first
    assert next_step_to_hold(node("deploy failed", "t", "i"), "t") is NodeStep.DEPLOY_AGAIN
    assert next_step_to_hold(node("available", "t", "i"), "t") is NodeStep.DEPLOY
    assert next_step_to_hold(node("available", "u"), "t") is NodeStep.CLAIM  # given back, and not yet unmarked
    assert next_step_to_hold(node("active", "u", "i"), "t") is NodeStep.TAKEN
    assert next_step_to_hold(node("clean failed"), "t") is NodeStep.BROKEN
    assert next_step_to_hold(node("cleaning", "t"), "t") is NodeStep.WAIT
    assert next_step_to_return(node("deploying", "t", "i")) is NodeStep.WAIT
    assert next_step_to_return(node("deploy failed", "t", "i", maintenance=True)) is NodeStep.RELEASE
    assert next_step_to_return(node("available", "t")) is NodeStep.RELEASE


async def test_ironic_is_killed_in_a_deploy_and_the_lease_is_active_all_the_same(tmp_path: Path) -> None:
    """Ironic itself gives such a deploy up. Then the node breaks, and the lease gets another one."""
    async with ironic_running(tmp_path / "ironic", deploy=2) as ironic:
        await ironic.enroll("h1", "h2")
        file = tmp_path / "connections.yaml"
        file.write_text(yaml.safe_dump({"hosts": {"provider": "ironic", "url": ironic.url}}))
        patience = str(PATIENCE)
        async with opened(tmp_path / "home", connections=str(file), call_timeout="60", patience=patience) as running:
            tenant = Tenant(ActionClient(running.client), running.stack, "metal")
            await tenant.add_hosts("h1")
            await tenant.create(start="now", end="+2h")
            assert await ironic.until("h1", "deploying", "active") == "deploying"
            await ironic.kill()
            await ironic.start()
            await tenant.until_status("ACTIVE")
            assert await ironic.state("h1") == "active"
            # The node breaks: its lease moves to the other one.
            await tenant.add_hosts("h2")
            await ironic.call("PUT", "/v1/nodes/h1/maintenance", json={"reason": "smoke"})
            assert (await tenant.do(tenant.host("h1"), "fail")).result == "succeeded"
            assert await ironic.until("h2", "active") == "active"
            assert [host.rpartition(":")[2] for host in (await tenant.see()).reservations[0].hosts] == ["h2"]
            assert (await tenant.do(tenant.lease(), "delete")).result == "succeeded"
            assert await ironic.until("h2", "available") == "available"
            assert (await ironic.read_node("h2"))["lessee"] is None
            await tenant.stop_clock()
