"""Workers with RATCHET_SIMULATED=off refuse what needs a simulated provider, in every family, and write nothing."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from activities.dryrun import DryRunChecker
from activities.reads import ReadActivities
from domain import registry
from domain.edge.messages import CrmConnect, CrmResponse
from domain.edge.reports import AnswerReport, ConnectReport
from domain.errors import Category, Refused
from domain.model import ReadQuery, Refusal, StoreView
from store.edge.links import accept_connection, record_answer
from tests.test_store.driver import NOON, WEB, StoreDriver, claim, group, no_doubt
from workers.crm import CrmOptions, serve_crm
from workers.settings import WorkerSettings

BERLIN = "org:acme:cloudlet:berlin"
SHOP, RUN = "system:shop", {"command": ["run"]}
MCI_SPEC: dict[str, Any] = {"subGroups": [group()]}
MCI_LEASE = {"resource_type": "mci", "mci": WEB}
LEASE = {"start": "2026-01-01 13:00", "end": "2026-01-01 14:00"}


async def refused(driver: StoreDriver, path: str, action: str, **request: Any) -> Refusal:
    before = await driver.dump()
    strict = claim(path, action, **request).model_copy(update={"no_simulation": True})
    admission = await driver.inventory.begin_action(strict)
    assert admission.refusal, admission.grant
    assert await driver.dump() == before
    return admission.refusal


@pytest.mark.parametrize(
    ("path", "action", "spec"),
    [
        (WEB, "create", MCI_SPEC),
        ("account:a:cloudspace:dev", "create", {}),
        ("node:n1", "create", {}),
        ("image:linux", "create", {}),
        ("pool:main:host:h1", "add", {}),
        ("project:p1:lease:l1", "create", {**LEASE, "hosts": 1}),
        (SHOP, "create", {"backend": "simulated"}),
        (SHOP, "create", {}),
    ],
)
async def test_nothing_simulated_is_created(driver: StoreDriver, path: str, action: str, spec: dict[str, Any]) -> None:
    refusal = await refused(driver, path, action, spec=spec)
    assert refusal.category is Category.NOT_ALLOWED
    assert "is simulated, and the workers refuse what is simulated (RATCHET_SIMULATED=off)" in refusal.message
    assert "without RATCHET_SIMULATED" in refusal.hint


async def test_what_is_simulated_already_is_left_alone(driver: StoreDriver) -> None:
    made = await driver.grant(WEB, "create", spec=MCI_SPEC)
    await driver.land(made, "Running")
    await driver.finish(made)
    await driver.finish(await driver.grant(SHOP, "create", spec={"backend": "simulated"}))
    await driver.finish(await driver.grant("node:n1", "create", spec={}))
    await refused(driver, WEB, "suspend")
    await refused(driver, f"{WEB}:vm:front-1", "suspend")
    await refused(driver, "node:n1", "maintain", spec={})
    assert "the provider of system:shop" in (await refused(driver, SHOP, "delete")).message
    deploy = await refused(driver, f"{SHOP}:web", "deploy", spec={"definition": RUN})
    assert deploy.message.startswith("the provider of system:shop is simulated")


async def test_what_is_real_is_not_refused(driver: StoreDriver) -> None:
    real = {**MCI_SPEC, "subGroups": [{**group(), "provider": "aws"}]}
    strict = {"no_simulation": True, "serves": ["aws/eu-1@aws"]}
    for path, action, spec in (
        (WEB, "create", real),
        (SHOP, "create", {"backend": "process"}),
        ("project:p1:lease:l1", "create", {**LEASE, "reservations": [MCI_LEASE]}),
    ):
        admission = await driver.inventory.begin_action(claim(path, action, spec=spec).model_copy(update=strict))
        assert admission.grant, admission.refusal


def test_every_kind_with_a_provider_says_whether_it_is_simulated() -> None:
    """Groups and records are as real as their members; some are as real as what is above them."""
    silent = {name for name, kind in registry.KINDS.items() if not (kind.is_simulated or kind.as_simulated_as)}
    assert silent == {"account", "deploy", "event", "lease", "mci", "orphan", "policy", "teardown"}
    for kind in registry.KINDS.values():
        assert not kind.as_simulated_as or registry.KINDS[kind.as_simulated_as].is_simulated, kind.name


async def describe_nothing() -> StoreView:
    pytest.fail("reads of objects do not describe the store")


@pytest.mark.parametrize(("backend", "simulated"), [("simulated", True), ("process", False), ("", False)])
async def test_what_a_crm_says_of_its_backend_decides_for_all_on_its_cloudlet(
    driver: StoreDriver, backend: str, simulated: bool
) -> None:
    await driver.finish(await driver.grant(BERLIN, "create", spec={}))
    said = CrmConnect(notify_id=1, backend=backend)
    report = ConnectReport(cloudlet=BERLIN, said=said, at=NOON)
    await driver.database.run_transaction(partial(accept_connection, doubt=no_doubt, fact=report))
    ready = AnswerReport(cloudlet=BERLIN, said=CrmResponse(state="Ready", notify_id=1), at=NOON)
    await driver.database.run_transaction(partial(record_answer, doubt=no_doubt, fact=ready))
    cluster = f"{BERLIN}:cluster:c1"
    await driver.finish(await driver.grant(cluster, "create", spec={}))
    reads = ReadActivities(driver.inventory, describe_nothing, DryRunChecker(driver.inventory))
    for path in (BERLIN, cluster):
        assert (await reads.read_object(ReadQuery(path=path))).simulated is simulated
    assert [view.simulated for view in (await reads.read_objects(ReadQuery(kind="cluster"))).objects] == [simulated]
    if simulated:
        refusal = await refused(driver, f"{cluster}:app:shop", "create", spec={})
        assert refusal.message.startswith(f"the provider of {BERLIN} is simulated")


async def test_the_reference_crm_does_not_start(tmp_path: Path) -> None:
    settings = WorkerSettings(home=tmp_path, simulated="off")
    with pytest.raises(Refused, match="the platform of this reference CRM is simulated"):
        await serve_crm(settings, CrmOptions("org:acme:cloudlet:berlin"))
    assert list(tmp_path.iterdir()) == []
