"""Workers with RATCHET_SIMULATED=off refuse what needs a simulated provider, in every family, and write nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from domain import registry
from domain.errors import Category, Refused
from domain.model import Refusal
from tests.test_store.driver import WEB, StoreDriver, claim, group
from workers.crm import CrmOptions, serve_crm
from workers.settings import WorkerSettings

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
    assert deploy.message.startswith("the backend of system:shop is simulated")


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
    """Edge objects are at a CRM, of which we cannot know what it is; groups and records are as real as their parts."""
    silent = {name for name, kind in registry.KINDS.items() if kind.is_simulated is None}
    assert silent >= {"cloudlet", "cluster", "app", "mci", "lease"}
    assert not silent & {"vm", "machine", "disk", "cloudspace", "image", "node", "host", "system", "reservation"}


async def test_the_reference_crm_does_not_start(tmp_path: Path) -> None:
    settings = WorkerSettings(home=tmp_path, simulated="off")
    with pytest.raises(Refused, match="the platform of this reference CRM is simulated"):
        await serve_crm(settings, CrmOptions("org:acme:cloudlet:berlin"))
    assert list(tmp_path.iterdir()) == []
