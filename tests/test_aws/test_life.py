"""An MCI on EC2 through the real workflows: the inventory agrees with EC2, whatever goes wrong."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from client.connection import connect_temporal
from domain import wire
from domain.errors import Refused
from domain.faults import Fault, FaultKind
from domain.invariants import VerificationReport
from domain.mci.messages import SurveyRequest
from domain.model import ActionResult, ReadQuery
from domain.ports import SHARED_RESOURCE_TYPES
from starter.mci import requests
from tests.faulty import Moto
from tests.patience import PATIENCE
from tests.stack import until_polled
from tests.test_aws.conftest import OWNER, PATIENTLY, REGION
from tests.user import User
from workers import embedded
from workers.plugin import temporal_plugin
from workers.service import WorkerService
from workers.settings import WorkerSettings

STATUS = {"running": "Running", "stopped": "Suspended", "terminated": "Terminated"}


def spec(size: int = 2, *places: str) -> dict[str, Any]:
    groups = [{"name": place, "connectionName": place, "subGroupSize": size} for place in places or ("frankfurt",)]
    return {"subGroups": groups}


def real(moto: Moto, user: User) -> dict[str, list[str]]:
    """What EC2 has, by path: the states of the VMs that carry it."""
    found: dict[str, list[str]] = {}
    for instance in moto.ec2.instances(OWNER):
        tags = {tag["key"]: tag["value"] for tag in instance.get_tags()}
        if tags["ratchet:path"].startswith(f"ns:{user.ns}:"):
            found.setdefault(tags["ratchet:path"], []).append(instance._state.name)
    return found


async def books_agree(moto: Moto, user: User) -> None:
    """One VM in EC2 for each record, in the same state; nothing else."""
    members = (await user.see(user.mci())).members
    assert {vm.path: [vm.status] for vm in members} == {
        path: [STATUS[state] for state in states] for path, states in real(moto, user).items()
    }


async def test_an_mci_lives_its_life_in_two_regions_of_ec2(user: User, moto: Moto) -> None:
    moto.ec2.settle_seconds = 0.1
    made = await user.do(user.mci(), "create", spec=spec(3, "frankfurt", "virginia"))
    assert (made.result, made.status) == (ActionResult.SUCCEEDED, "Running:6 (R:6/6)")
    await books_agree(moto, user)
    for action, status in (
        ("suspend", "Suspended:6 (R:0/6)"),
        ("resume", "Running:6 (R:6/6)"),
        ("reboot", "Running:6 (R:6/6)"),
        ("terminate", "Terminated:6 (R:0/6)"),
    ):
        outcome = await user.do(user.mci(), action)
        assert (outcome.result, outcome.status) == (ActionResult.SUCCEEDED, status)
        await books_agree(moto, user)
    assert (await user.do(user.mci(), "delete")).result is ActionResult.SUCCEEDED
    assert {state for states in real(moto, user).values() for state in states} == {"terminated"}
    assert moto.ec2.shared(OWNER) == Counter(), "what VMs shared went with the last of them"


async def test_what_vms_share_is_made_before_them_and_tagged(user: User, moto: Moto) -> None:
    await user.do(user.mci(), "create", spec=spec(1))
    shared = moto.ec2.shared(OWNER)
    assert {what: shared[what] for what in SHARED_RESOURCE_TYPES} == {
        "vnet": 3,
        "securityGroup": 1,
        "sshKey": 1,
    }
    [vm] = (await user.see(user.mci())).members
    assert vm.info["cloud_id"].startswith("i-")
    assert vm.info["address"]
    await user.do(user.mci(), "delete")


async def test_two_tenants_of_one_region_share_nothing_and_each_removes_its_own(user: User, moto: Moto) -> None:
    other = replace(user, ns=f"{user.ns}b")
    for tenant in (user, other):
        await tenant.do(tenant.mci(), "create", spec=spec(1))
    networks = [
        (vm.vpc_id, {group.id for group in vm.security_groups}, vm.key_name) for vm in vms_of(moto, user, other)
    ]
    [(vpc, groups, key), (other_vpc, other_groups, other_key)] = networks
    assert vpc != other_vpc
    assert not groups & other_groups
    assert key != other_key
    assert user.ns in key
    await user.do(user.mci(), "delete")
    assert moto.ec2.shared(OWNER, f"ns:{user.ns}") == Counter()
    assert moto.ec2.shared(OWNER, f"ns:{other.ns}") == {"vnet": 3, "securityGroup": 1, "sshKey": 1}
    assert (await other.do(other.mci(), "reboot")).result is ActionResult.SUCCEEDED
    await other.do(other.mci(), "delete")
    assert moto.ec2.shared(OWNER, f"ns:{other.ns}") == Counter()


def vms_of(moto: Moto, *users: User) -> list[Any]:
    """The users' VMs in EC2, in the order of the users."""
    found = {
        tag["value"]: vm for vm in moto.ec2.instances(OWNER) for tag in vm.get_tags() if tag["key"] == "ratchet:path"
    }
    return [found[user.vm("frankfurt-1")] for user in users]


@pytest.mark.parametrize(
    "fault",
    [
        Fault(kind=FaultKind.LOSE_ANSWER, times=3),
        Fault(kind=FaultKind.THROTTLE, times=3, retry_after=0.1),
        Fault(kind=FaultKind.UNAVAILABLE, times=3),
        Fault(kind=FaultKind.SLOW, seconds=0.3, times=4),
        Fault(kind=FaultKind.LOSE_ANSWER, verb="prepare", times=2),
    ],
    ids=lambda fault: f"{fault.kind} {fault.verb}",
)
async def test_trouble_that_passes_fails_nothing_and_makes_nothing_twice(user: User, moto: Moto, fault: Fault) -> None:
    moto.ec2.add_fault(fault)
    made = await user.do(user.mci(), "create", spec=spec(4))
    assert (made.result, made.status) == (ActionResult.SUCCEEDED, "Running:4 (R:4/4)")
    await books_agree(moto, user)
    moto.ec2.add_fault(fault)
    gone = await user.do(user.mci(), "delete")
    assert gone.result is ActionResult.SUCCEEDED, gone
    assert sorted(real(moto, user).values()) == [["terminated"]] * 4


async def test_a_vm_that_cannot_be_made_fails_alone_with_ec2s_reason(user: User, moto: Moto) -> None:
    moto.ec2.add_fault(Fault(kind=FaultKind.FAIL, vm="frankfurt-2", verb="create", message="no such luck"))
    made = await user.do(user.mci(), "create", spec=spec(3))
    assert (made.result, made.status) == (ActionResult.PARTIAL, "Partial-Running:2 (R:2/3)")
    failed = await user.service.inventory.read_object(user.vm("frankfurt-2"))
    assert failed.status == "Failed"
    assert "no such luck" in failed.error
    moto.ec2.clear()
    assert (await user.do(user.mci(), "refine")).result is ActionResult.SUCCEEDED
    await books_agree(moto, user)
    await user.do(user.mci(), "delete")


async def test_what_ec2_does_not_offer_is_refused_before_anything_is_made(user: User, moto: Moto) -> None:
    wrong = spec(1)
    wrong["subGroups"][0] |= {"specId": "t9.mega", "imageId": "ami-0123456789abcdef0"}
    message = await user.refused(user.mci(), "create", spec=wrong)
    assert "aws/eu-central-1 has no instance type 't9.mega'" in message
    assert "aws/eu-central-1 has no image 'ami-0123456789abcdef0'" in message
    assert real(moto, user) == {}


async def test_a_region_without_a_connection_is_refused_and_never_simulated(user: User) -> None:
    elsewhere = {"subGroups": [{"name": "a", "csp": "aws", "region": "ap-northeast-2"}]}
    message = await user.refused(user.mci(), "create", spec=elsewhere)
    assert "no connection leads to aws/ap-northeast-2" in message
    simulated = {"subGroups": [{"name": "a", "csp": "gcp", "region": "r1"}]}
    assert (await user.do(user.mci(), "create", spec=simulated)).result is ActionResult.SUCCEEDED


async def test_a_cancelled_creation_leaves_nothing_that_nobody_knows(user: User, moto: Moto) -> None:
    moto.ec2.settle_seconds = PATIENCE
    ticket = await user.admitted(user.mci(), "create", spec=spec(4))
    async with asyncio.timeout(PATIENCE):
        while len(real(moto, user)) < 4:
            await asyncio.sleep(0.02)
    await user.asking.cancel_action(user.mci())
    moto.ec2.settle_seconds = 0
    moto.ec2.settle()
    await user.asking.wait_for_outcome(ticket.path, ticket.run)
    moto.ec2.clear()
    await asyncio.sleep(0)
    assert (await user.do(user.mci(), "delete")).result is ActionResult.SUCCEEDED
    assert {state for states in real(moto, user).values() for state in states} == {"terminated"}


async def test_a_home_that_began_simulated_goes_on_with_real_places_beside_and_nobody_takes_one_for_the_other(
    moto: Moto, tmp_path: Path, ns: str
) -> None:
    file = tmp_path / "connections.yaml"
    file.write_text(yaml.safe_dump({"connections": {"frankfurt": moto.document(REGION, "second-home")}}))
    server = await embedded.start_server(tmp_path)
    client = await connect_temporal(tmp_path, temporal_plugin(sandbox=True))

    @asynccontextmanager
    async def worker(connections: Path | None) -> AsyncIterator[User]:
        settings = WorkerSettings(home=tmp_path, connections=connections, **PATIENTLY)
        service = WorkerService(client, settings)
        service.prepare_databases()
        async with service.serve_queues():
            yield User(await until_polled(client), service, ns)
        await service.close()

    def instances() -> list[str]:
        return [instance._state.name for instance in moto.ec2.instances("second-home")]

    groups = {"subGroups": [{"name": "a", "csp": "aws", "region": REGION}]}
    async with worker(None) as user:
        await user.do(user.mci("tour"), "create", spec=groups)
    async with worker(file) as user:
        assert (await user.do(user.mci("real"), "create", spec=groups)).status == "Running:1 (R:1/1)"
        [vm] = (await user.see(user.mci("real"))).members
        assert vm.placement.startswith(f"aws/{REGION}@aws-")
        assert (
            await user.asking.run_query(
                wire.VERIFY_ACTIVITY, ReadQuery(path=f"ns:{ns}"), VerificationReport, seconds=PATIENCE
            )
        ).findings == []
        assert (await user.do(user.mci("tour"), "suspend")).status == "Suspended:1 (R:0/1)"
        assert (await user.do(user.mci("tour"), "delete")).result is ActionResult.SUCCEEDED
        assert instances() == ["running"]
    async with worker(None) as user:
        for action in ("suspend", "delete"):
            assert "cannot be reached from this worker: nothing was changed" in await user.refused(
                user.mci("real"), action
            )
        assert "cannot be reached" in await user.refused(vm.path, "terminate")
        with pytest.raises(Refused, match="cannot be reached"):
            await requests.run_survey(user.asking, SurveyRequest(path=user.mci("real"), reconcile=True))
        [finding] = (
            await user.asking.run_query(
                wire.VERIFY_ACTIVITY, ReadQuery(path=f"ns:{ns}"), VerificationReport, seconds=PATIENCE
            )
        ).findings
        assert (finding.path, "not served by this worker" in finding.what) == (vm.placement, True)
        assert instances() == ["running"]
    async with worker(file) as user:
        assert (await user.do(user.mci("real"), "delete")).result is ActionResult.SUCCEEDED
        assert instances() == ["terminated"]
    await server.stop_server()
