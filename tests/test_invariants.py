"""The invariants that `starter verify` checks, on facts made by hand: a broken one is named, and no other."""

from __future__ import annotations

from domain import registry
from domain.invariants import (
    ActionOverlapChecker,
    ActionRecord,
    AuditedHistoryLine,
    HistoryChecker,
    find_missing_outcomes,
    find_missing_runs,
    find_unaccounted_changes,
    find_unowned_transitions,
)
from domain.statetable import NONE, Actor, LineEffect
from tests.cases import every_case

VM = "ns:default:mci:web:vm:a-1"
CREATED = [("create", NONE, "Creating", 1), ("create", "Creating", "Running", 1)]
SUSPENDED = [("suspend", "Running", "Suspending", 2), ("suspend", "Suspending", "Suspended", 2)]
# The lines of a VM's history (action, from, to, epoch), its status now, and what is wrong with that.
HISTORIES: dict[str, tuple[list[tuple[str, str, str, int]], str, str]] = {
    "created": (CREATED, "Running", ""),
    "suspended": (CREATED + SUSPENDED, "Suspended", ""),
    "a failure goes back": ([*CREATED, SUSPENDED[0], ("suspend", "Suspending", "Running", 2)], "Running", ""),
    "healed": ([*CREATED, SUSPENDED[0], ("heal", "Suspending", "Running", 2)], "Running", ""),
    "healed to a wrong status": ([*CREATED, SUSPENDED[0], ("heal", "Suspending", "Suspended", 2)], "", "no row"),
    "another status now": (CREATED, "Suspended", "is Suspended, but its history ends in Running"),
    "a line is missing": ([*CREATED, SUSPENDED[1]], "", "leaves Suspending, but it was Running"),
    "the status of another action": ([*CREATED, ("suspend", "Running", "Rebooting", 2)], "", "no row leads"),
    "taken over by force": ([*CREATED, SUSPENDED[0], ("terminate", "Suspending", "Terminating", 3)], "", ""),
    "an older action": ([*CREATED[:1], ("create", "Creating", "Running", 0)], "", "older action"),
    "a step that no row has": ([*CREATED, ("suspend", "Running", "Failed", 2)], "", "no row leads"),
}


def check_history(kind: str, lines: list[AuditedHistoryLine], status: str) -> str:
    checker = HistoryChecker(registry.KINDS[kind].table, VM)
    for line in lines:
        checker.check_line(line)
    return " ".join(finding.what for finding in checker.check_final_status(status))


def lines_of(*told: tuple[str, str, str, int]) -> list[AuditedHistoryLine]:
    return [AuditedHistoryLine(seq, VM, Actor.USER, *line) for seq, line in enumerate(told, 1)]


@every_case("name", HISTORIES)
def test_a_history_that_its_table_does_not_allow_is_named(name: str) -> None:
    told, status, wrong = HISTORIES[name]
    found = check_history("vm", lines_of(*told), status or told[-1][2])
    assert wrong in found
    assert bool(found) == bool(wrong), found


def test_what_was_ignored_is_no_change() -> None:
    noise = AuditedHistoryLine(3, VM, Actor.USER, "resume", "Suspended", "Resuming", 0, LineEffect.IGNORED)
    assert check_history("vm", [*lines_of(*CREATED), noise], "Running") == ""


def test_the_first_fault_of_a_history_is_kept() -> None:
    told = lines_of(("create", "Running", "Creating", 1), ("create", "Creating", "Running", 1))
    assert "line 1 leaves Running" in check_history("vm", told, "Running")


def test_a_walk_goes_on_where_another_stopped() -> None:
    table = registry.KINDS["vm"].table
    first, second = HistoryChecker(table, VM), HistoryChecker(table, VM)
    told = lines_of(*CREATED, *SUSPENDED)
    for line in told[:3]:
        first.check_line(line)
    second.position = first.position
    second.check_line(told[3])
    assert second.check_final_status("Suspended") == []
    assert second.check_final_status("Running") != []


def action(path: str, first: int, last: int, ended: bool = True, epoch: int = 1) -> ActionRecord:
    return ActionRecord(epoch, path, "suspend", f"run-{path}", ended, ended, first=first, last=last)


# Actions (path, first line, last line, whether it has ended), in the order of paths, and which of them overlap.
OVERLAPS: dict[str, tuple[list[tuple[str, int, int, bool]], list[str]]] = {
    "one after the other": ([("a", 1, 2, True), ("a", 3, 4, True)], []),
    "on the same object": ([("a", 1, 3, True), ("a", 2, 4, True)], ["a"]),
    "the first is still open": ([("a", 1, 2, False), ("a", 3, 4, True)], ["a"]),
    "above and below": ([("a", 1, 4, True), ("a:b", 2, 3, True)], ["a:b"]),
    "below, then above": ([("a", 3, 4, True), ("a:b", 1, 3, True)], ["a"]),
    "before and after the one above": ([("a", 3, 4, True), ("a:b", 1, 2, True), ("a:b", 5, 6, True)], []),
    "beside each other": ([("a", 1, 4, True), ("b", 2, 3, True)], []),
    "only the names begin alike": ([("a", 1, 4, True), ("ab", 2, 3, True)], []),
    "after one with a name between": ([("a", 1, 5, True), ("a-b", 2, 3, True), ("a:b", 2, 4, True)], ["a:b"]),
    "two levels below": ([("a", 1, 4, True), ("a:b:c", 2, 3, True)], ["a:b:c"]),
    "nothing written yet": ([("a", 0, 0, False), ("a", 0, 0, False)], []),
}


@every_case("name", OVERLAPS)
def test_actions_that_were_under_way_together_are_named(name: str) -> None:
    told, overlapping = OVERLAPS[name]
    checker = ActionOverlapChecker()
    found = []
    for path in sorted({row[0] for row in told}):
        found += checker.check_actions_of_path(path, [action(*row) for row in told if row[0] == path])
    assert [finding.path for finding in found] == overlapping


def test_a_change_that_no_action_made_is_named() -> None:
    changed, ignored = lines_of(*CREATED)[0], lines_of(*CREATED)[1]._replace(effect=LineEffect.IGNORED)
    assert find_unaccounted_changes([changed], {1}) == []
    assert [finding.path for finding in find_unaccounted_changes([changed], {2})] == [VM]
    assert find_unaccounted_changes([ignored], {2}) == []


def test_an_end_without_an_outcome_and_an_open_action_without_a_run_are_named() -> None:
    ended, open_action = action("a", 1, 2), action("b", 1, 2, ended=False)
    assert find_missing_outcomes([ended, open_action]) == []
    ended.has_outcome = False
    assert [finding.path for finding in find_missing_outcomes([ended, open_action])] == ["a"]
    assert find_missing_runs([open_action], {"run-b"}) == []
    assert [finding.path for finding in find_missing_runs([open_action], {"run-a"})] == ["b"]


def test_a_transition_and_a_lock_that_no_open_action_owns_are_named() -> None:
    under_way, held = [("a", "Suspending", 1)], [("b", "suspend", "run-b")]
    assert find_unowned_transitions(under_way, held, {1}, {"run-b"}) == []
    assert [each.path for each in find_unowned_transitions(under_way, held, {2}, {"run-b"})] == ["a"]
    assert [each.path for each in find_unowned_transitions(under_way, held, {1}, {"run-a"})] == ["b"]
