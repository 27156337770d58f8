"""A family of the worker that lacks something is told all of it, each with the place where it belongs."""

from __future__ import annotations

import re
from logging import getLogger
from pathlib import Path

import pytest
from temporalio import workflow
from temporalio.exceptions import ApplicationError

from domain import registry
from domain.model import Grant, Request, WorkReport
from domain.statetable import Ruling
from starter.families import all_extensions
from tests.registry import FILES_OF_FAMILY, NAMES, ROOT, missing_files, module_of
from workers import families
from workflows.action import ActionWorkflow
from workflows.leases import calls
from workflows.leases.actions import UpdateLease

FAMILY_TABLE = re.compile(r"(?m)^\| family \|.*\n\|[ |-]*\n((?:\|.*\n)+)")


def test_every_family_of_the_worker_is_complete() -> None:
    lacking = [sentence for family in NAMES for sentence in missing_files(family)]
    lacking += [
        f"{place}, which lists every family, has no {name}"
        for place, names in _lists_of_families().items()
        for name in NAMES
        if name not in names
    ]
    lacking += [
        f"family {name} has no demo: EXTENSION of starter/{name}/__init__.py"
        for name, extension in all_extensions().items()
        if extension.demo is None
    ]
    assert not lacking, "\n".join(lacking)


def _lists_of_families() -> dict[str, set[str]]:
    """The registry, and the tables of the README and docs/ that have a row for each family."""
    places = {"FAMILIES of domain/registry.py": set(registry.FAMILIES)}
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for number, rows in enumerate(FAMILY_TABLE.findall(page.read_text()), 1):
            table = f"table {number} of {page.relative_to(ROOT)} whose first column is `family`"
            places[table] = {re.findall(r"\w+", row)[0].lower() for row in rows.splitlines()}
    return places


def test_a_family_that_lacks_files_is_told_all_of_them(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "things.md").touch()
    lacking = missing_files("things", tmp_path)
    assert len(lacking) == len(FILES_OF_FAMILY) - 1
    assert "family things has no tests/records/things.py: the function that records its histories" in lacking


@pytest.mark.parametrize("package", ["tests.records", "tests.chaos.families"])
def test_a_family_without_a_module_among_the_tests_is_named(package: str) -> None:
    with pytest.raises(LookupError, match=f"family things has no {package.replace('.', '/')}/things.py"):
        module_of("things", package)


def test_the_registry_has_the_kinds_of_every_family() -> None:
    """And every hook is of a kind of its own family."""
    assert {kind.name for family in families.FAMILIES for kind in family.kinds} == set(registry.KINDS)
    strange = {family.name: set(family.hooks()) - {kind.name for kind in family.kinds} for family in families.FAMILIES}
    assert not any(strange.values()), strange


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
