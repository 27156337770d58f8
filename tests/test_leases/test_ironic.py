"""The contract of every site of hosts; and leases of bare metal: a real Ironic is killed in the middle of a deploy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from domain.errors import Rejected, Superseded, Unavailable
from domain.leases.capacity import ResourceSize
from domain.leases.messages import DesiredHolding, HostFailed, HostSite
from providers.leases.hosts import SimulatedHosts
from providers.leases.ironic import IronicHosts, IronicOptions
from providers.leases.ironic.hosts import VERSION, IronicApi
from providers.leases.ironic.nodes import EXTRA_KEY, IronicNode, NodeStep, next_step_to_hold, next_step_to_return
from providers.simulated.tables import metadata
from store.engine import Database
from tests.ironic import Ironic, ironic_running
from tests.patience import PATIENCE
from tests.stack import opened, until_polled
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
    for name in ("h1", "h2", "h3"):  # tests use one reservation, whose later orders outdate the earlier ones
        if (await ironic.read_node(name))["lessee"]:
            changes = [{"op": "remove", "path": path} for path in ("/lessee", f"/extra/{EXTRA_KEY}")]
            await ironic.call("PATCH", f"/v1/nodes/{name}", json=changes)


@pytest.fixture(params=["simulated", "ironic"])
async def site(request: pytest.FixtureRequest, hosts: IronicHosts, tmp_path: Path) -> AsyncIterator[HostSite]:
    """Every site of hosts in turn, under the same contract."""
    if request.param == "ironic":
        yield hosts
        return
    database = Database(f"sqlite:///{tmp_path / 'cloud.db'}")
    await database.run_transaction(metadata.create_all)
    yield SimulatedHosts(database)
    database.close()


async def held(site: HostSite, reservation: str = "") -> list[str]:
    found = await site.list_held_hosts([reservation or RESERVATION])
    return sorted(tenant.host.rpartition(":")[2] for tenant in found)


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
    usual: dict[str, Any] = {"reservation": RESERVATION, "whole": True, "size": ResourceSize(0, 0, 0), **more}
    return DesiredHolding(
        token=f"{usual['reservation']}#{generation}",
        generation=generation,
        version=version,
        hosts={f"pool:metal:host:{name}": 1 for name in names},
        **usual,
    )


async def test_a_site_hands_over_what_the_latest_order_says(site: HostSite) -> None:
    await settle(site.set_reservation_hosts, holding("h1", "h2"))
    await site.set_reservation_hosts(holding("h1", "h2"))  # repeated
    assert await held(site) == ["h1", "h2"]
    await settle(site.set_reservation_hosts, holding("h2", "h3", version=2))
    await site.set_reservation_hosts(holding("h1", version=1))  # late
    assert await held(site) == ["h2", "h3"]
    await settle(site.set_reservation_hosts, holding(version=3))
    assert await held(site) == []


async def test_a_site_gives_a_host_to_one_reservation_and_to_none_that_is_gone(site: HostSite) -> None:
    await settle(site.set_reservation_hosts, holding("h1", generation=2))
    with pytest.raises(Rejected, match="h1 is still held by project:p:lease:l"):
        await site.set_reservation_hosts(holding("h1", reservation="project:p:lease:m:reservation:r1"))
    with pytest.raises((Superseded, Rejected)):
        await site.set_reservation_hosts(holding("h1", generation=1))
    with pytest.raises(Superseded):
        await site.take_back_hosts(RESERVATION, 1)
    assert await held(site) == ["h1"]
    await settle(site.take_back_hosts, RESERVATION, 2)
    assert await held(site) == []


async def test_a_site_lists_what_is_held_in_order_and_below_a_path(site: HostSite) -> None:
    other = "project:p:lease:m:reservation:r1"
    await settle(site.set_reservation_hosts, holding("h1", "h2"))
    await settle(site.set_reservation_hosts, holding("h3", reservation=other))
    listed = [tenant.host.rpartition(":")[2] for tenant in await site.list_existing_objects("", ("", ""))]
    assert listed == ["h1", "h2", "h3"]
    (last,) = await site.list_existing_objects("", (RESERVATION, "pool:metal:host:h2"))
    assert (last.reservation, last.token, last.generation) == (other, f"{other}#1", 1)
    assert await site.list_existing_objects("project:p:lease:m", ("", "")) == [last]
    for reservation in (RESERVATION, other):
        await settle(site.take_back_hosts, reservation, 1)


async def test_nodes_are_deployed_for_a_reservation_and_undeployed_after_it(ironic: Ironic, hosts: IronicHosts) -> None:
    async def states() -> list[str]:
        return [await ironic.state(name) for name in ("h1", "h2", "h3")]

    await settle(hosts.set_reservation_hosts, holding("h1", "h2"))
    assert await states() == ["active", "active", "available"]
    await settle(hosts.set_reservation_hosts, holding("h2", "h3", version=2))
    assert await states() == ["available", "active", "active"]
    await settle(hosts.set_reservation_hosts, holding(version=3))
    assert await states() == ["available"] * 3
    assert await hosts.list_existing_objects("", ("", "")) == []
    assert (await ironic.read_node("h2"))["instance_uuid"] is None
    other = "project:p:lease:m:reservation:r1"
    await settle(hosts.set_reservation_hosts, holding("h2", reservation=other))  # whoever had it before
    assert (await ironic.read_node("h2"))["lessee"] == f"{other}#1"
    assert await held(hosts) == []


async def test_many_free_nodes_are_read_in_one_call_and_others_by_name(ironic: Ironic, hosts: IronicHosts) -> None:
    await ironic.enroll("h4")
    await settle(hosts.set_reservation_hosts, holding("h1"))
    asked: list[str] = []

    async def record(request: httpx.Request) -> None:
        asked.append(request.url.path)

    headers, hooks = {"X-OpenStack-Ironic-API-Version": VERSION}, {"request": [record]}
    async with httpx.AsyncClient(
        base_url=ironic.url, headers=headers, event_hooks=hooks, timeout=PATIENCE, trust_env=False
    ) as client:
        found = await IronicApi(client).find_nodes({"h1", "h2", "h3", "h4"})
    assert {name: node.state for name, node in found.items()} == {
        "h1": "active",
        **dict.fromkeys(("h2", "h3", "h4"), "available"),
    }
    assert asked == ["/v1/nodes", "/v1/nodes/h1"]


async def test_a_node_that_is_not_there_and_a_part_of_a_node_are_refused(hosts: IronicHosts) -> None:
    with pytest.raises(Rejected, match="404"):
        await hosts.set_reservation_hosts(holding("h9"))
    with pytest.raises(Rejected, match="whole hosts"):
        await hosts.set_reservation_hosts(holding("h2", whole=False))


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
    assert next_step_to_return(node("available", "t", "i")) is NodeStep.RELEASE
    assert next_step_to_return(node("manageable", "t")) is NodeStep.RELEASE
    assert next_step_to_return(node("available", "t")) is NodeStep.NOTHING
    assert next_step_to_return(node("available", "t", maintenance=True)) is NodeStep.NOTHING


async def test_ironic_is_killed_in_a_deploy_and_the_lease_is_active_all_the_same(tmp_path: Path) -> None:
    """Ironic itself gives such a deploy up. Then the node breaks, and the lease gets another one."""
    async with ironic_running(tmp_path / "ironic", deploy=PATIENCE) as ironic:
        await ironic.enroll("h1", "h2")
        file = tmp_path / "connections.yaml"
        file.write_text(yaml.safe_dump({"hosts": {"provider": "ironic", "url": ironic.url}}))
        patience = str(PATIENCE)
        async with opened(tmp_path / "home", connections=str(file), call_timeout="60", patience=patience) as running:
            tenant = Tenant(await until_polled(running.client), running.stack, "metal")
            await tenant.add_hosts("h1")
            await tenant.create(start="now", end="+2h")
            assert await ironic.until("h1", "deploying", "active") == "deploying"
            await ironic.kill()
            ironic.deploy = 0
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
            assert (await ironic.read_node("h2"))["instance_uuid"] is None
            await tenant.stop_clock()
