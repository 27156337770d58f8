"""A family of the worker that is missing in another layer is named, with the list that lacks it."""

from __future__ import annotations

from logging import getLogger
from pathlib import Path

import pytest
from temporalio import workflow
from temporalio.exceptions import ApplicationError

from domain.model import Grant, Request, WorkReport
from domain.registry import KINDS
from domain.statetable import Ruling
from starter.families import EXTENSIONS
from tests.cases import every_case
from tests.chaos.families import STORIES
from tests.records import FAMILIES as RECORDED
from tests.registry import NAMES, module_of
from tests.test_cli.test_demos import ELSEWHERE, TOLD
from tests.test_store.tour import STORIES as TOURS
from workers import families
from workflows.action import ActionWorkflow
from workflows.leases import calls
from workflows.leases.actions import UpdateLease

ROOT = Path(__file__).resolve().parent.parent
FAMILIES = set(NAMES)
LISTS = {
    "starter/families.py": set(EXTENSIONS),
    "tests/records/__init__.py": set(RECORDED) - {"kernel"},
    "tests/chaos/families/__init__.py": {story.family for story in STORIES} - {"healing"},
    "tests/test_store/tour.py": set(TOURS),
    "tests/test_cli/test_demos.py": {*TOLD, *ELSEWHERE},
    "docs/": {name for name in FAMILIES if (ROOT / "docs" / f"{name}.md").exists()},
    "tests/": {name for name in FAMILIES if any((ROOT / "tests").glob(f"test_{name}*"))},
}


@every_case("where", LISTS)
def test_every_family_of_the_worker_is_in(where: str) -> None:
    assert LISTS[where] == FAMILIES, where


@pytest.mark.parametrize("package", ["tests.records", "tests.chaos.families"])
def test_a_family_without_a_module_among_the_tests_is_named(package: str) -> None:
    with pytest.raises(LookupError, match=f"family things has no {package.replace('.', '/')}/things.py"):
        module_of("things", package)


def test_the_registry_has_the_kinds_of_every_family() -> None:
    """And every hook is of a kind of its own family."""
    assert {kind.name for family in families.FAMILIES for kind in family.kinds} == set(KINDS)
    strange = {family.name: set(family.hooks()) - {kind.name for kind in family.kinds} for family in families.FAMILIES}
    assert not any(strange.values()), strange


def test_every_family_has_a_demo() -> None:
    assert [name for name, face in EXTENSIONS.items() if face.demo is None] == []


ACTIONS = [workflow for workflow in families.WORKFLOWS if issubclass(workflow, ActionWorkflow)]
GRANT = Grant(epoch=1, path="pool:a:lease:b", action="update", ruling=Ruling.GO, came_from="", during="", then="")
OVER = ApplicationError("the action is over", type="Superseded", non_retryable=True)


@pytest.mark.parametrize("action", ACTIONS, ids=lambda each: str(each.__name__))
async def test_an_action_ends_also_if_what_became_of_its_work_cannot_be_found_out(
    action: type[ActionWorkflow], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever fails while it settles, also for want of the right to order: its end is written all the same."""
    assert action._settle_safely is ActionWorkflow._settle_safely, "the kernel catches it, for every family"

    async def settle(*_: object) -> WorkReport:
        raise OVER

    monkeypatch.setattr(action, "settle_work", settle)
    monkeypatch.setattr(workflow, "logger", getLogger(__name__))  # its own is for those that run
    request = Request(path=GRANT.path, action=GRANT.action)
    left = await action()._settle_safely(request, GRANT, cut_off=False)
    assert left == WorkReport(message="what became of the work is unknown: the action is over"), "its outcome says so"


async def test_an_update_of_a_lease_that_cannot_be_given_back_is_not_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nobody_answers(*_: object) -> None:
        raise OVER

    monkeypatch.setattr(calls, "hand_over", nobody_answers)
    grant = GRANT.model_copy(update={"details": {"hand_over": ["r1"]}})
    left = await UpdateLease().settle_work(Request(path=GRANT.path, action=GRANT.action), grant)
    assert (left.to, left.message) == ("ERROR", "not as it was: r1: the action is over")
