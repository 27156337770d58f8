"""Locks on paths: compatible modes, the locks of an action, and random runs against a brute-force model."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domain.locks import COMPATIBLE_MODES, HeldLock, LockMode, locks_needed_for, sort_held_locks
from tests.cases import every_case

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MCI = "ns:a:mci:w"
VM = f"{MCI}:vm:1"


def holds(owner: str, *paths: str) -> list[HeldLock]:
    """What an action on these paths holds."""
    return [
        HeldLock(path, mode, owner, f"run-{owner}", "suspend", NOON) for path, mode in locks_needed_for(paths).items()
    ]


def owners(found: list[HeldLock]) -> set[str]:
    return {hold.owner for hold in found}


@every_case(
    ("want", "held", "together"),
    [
        (LockMode.X, LockMode.X, False),
        (LockMode.X, LockMode.IX, False),
        (LockMode.IX, LockMode.X, False),
        (LockMode.IX, LockMode.IX, True),
        (LockMode.X, LockMode.CLOSED, False),
        (LockMode.HIDDEN_X, LockMode.CLOSED, False),
        (LockMode.IX, LockMode.CLOSED, True),
        (LockMode.HIDDEN_IX, LockMode.CLOSED, True),
        (LockMode.IX, LockMode.HIDDEN_IX, True),
        (LockMode.HIDDEN_IX, LockMode.HIDDEN_IX, True),
    ],
)
def test_the_truth_table_of_compatibility(want: LockMode, held: LockMode, together: bool) -> None:
    hold = HeldLock(VM, held, "other", "run", "suspend", NOON)
    assert ((want, held) in COMPATIBLE_MODES) is together
    assert sort_held_locks({VM: want}, [hold])[0] == ([] if together else [hold])


@every_case(("want", "held"), [(one, two) for one in LockMode for two in LockMode if one is not LockMode.CLOSED])
def test_what_meets_hidden_work_waits_and_what_meets_anything_else_is_refused(want: LockMode, held: LockMode) -> None:
    hold = HeldLock(VM, held, "other", "run", "migrate", NOON)
    together = (want, held) in COMPATIBLE_MODES
    hidden = {want, held} & {LockMode.HIDDEN_X, LockMode.HIDDEN_IX} and held is not LockMode.CLOSED
    assert sort_held_locks({VM: want}, [hold])[1] == ([hold] if hidden and not together else [])
    assert sort_held_locks({VM: want}, [hold])[0] == ([hold] if not hidden and not together else [])


def test_hidden_work_wants_the_same_paths_in_hidden_modes() -> None:
    assert locks_needed_for([VM], hidden=True) == {
        "ns:a": LockMode.HIDDEN_IX,
        MCI: LockMode.HIDDEN_IX,
        VM: LockMode.HIDDEN_X,
    }


def test_an_action_wants_x_on_itself_and_ix_on_what_is_above() -> None:
    assert locks_needed_for([VM]) == {"ns:a": LockMode.IX, MCI: LockMode.IX, VM: LockMode.X}
    assert locks_needed_for(["ns:a"]) == {"ns:a": LockMode.X}
    assert locks_needed_for([]) == {}


@pytest.mark.parametrize("paths", [[MCI, VM], [VM, MCI]])
def test_x_is_not_weakened_by_a_path_below_it(paths: list[str]) -> None:
    assert locks_needed_for(paths) == {"ns:a": LockMode.IX, MCI: LockMode.X, VM: LockMode.X}


def test_everybody_acquires_in_the_same_order() -> None:
    paths = ["ns:b:mci:z", "ns:a:mci:w:vm:9", "ns:a:mci:w:vm:10"]
    assert list(locks_needed_for(paths)) == sorted(locks_needed_for(paths)) == list(locks_needed_for(reversed(paths)))


@every_case(
    ("path", "other", "together"),
    [
        (VM, VM, False),
        (VM, MCI, False),
        (MCI, VM, False),
        (VM, "ns:a", False),
        ("ns:a", VM, False),
        (VM, f"{MCI}:vm:2", True),
        (VM, f"{MCI}:vm:11", True),  # begins alike, is not below
        (f"{MCI}x", VM, True),
        ("ns:a:mci:W", MCI, True),  # case twins
        ("ns:b", VM, True),
    ],
)
def test_an_action_excludes_those_above_and_below_it_and_no_others(path: str, other: str, together: bool) -> None:
    assert owners(sort_held_locks(locks_needed_for([path]), holds("other", other))[0]) == (
        set() if together else {"other"}
    )


def test_a_refusal_can_name_every_holder() -> None:
    held = [hold for n in range(5) for hold in holds(f"vm-{n}", f"{MCI}:vm:{n}")]
    assert owners(sort_held_locks(locks_needed_for([MCI]), held)[0]) == {f"vm-{n}" for n in range(5)}
    assert owners(sort_held_locks(locks_needed_for([f"{MCI}:vm:3"]), held)[0]) == {"vm-3"}


# Random histories.

TREE = ["a:1", "a:2", "a:1:b:1", "a:1:b:2", "a:1:b:11", "a:1:b:1:c:1", "a:1:b:1:c:2", "a:2:b:1"]
Action = frozenset[str]
actions = st.frozensets(st.sampled_from(TREE), min_size=1, max_size=3)


def overlap(one: str, other: str) -> bool:
    """Brute force: the same object, or one of them inside the other."""
    mine, theirs = one.split(":"), other.split(":")
    shared = min(len(mine), len(theirs))
    return mine[:shared] == theirs[:shared]


@settings(deadline=None)
@given(history=st.lists(st.one_of(actions, st.integers(0, 20)), max_size=40))
def test_random_actions_are_let_in_exactly_when_none_overlaps(history: list[Action | int]) -> None:
    """A set of paths is an action that asks to begin; a number is the end of one that runs."""
    running: dict[str, Action] = {}
    held: list[HeldLock] = []
    for number, event in enumerate(history):
        if isinstance(event, int):
            if running:
                ended = sorted(running)[event % len(running)]
                del running[ended]
                held = [hold for hold in held if hold.owner != ended]
            continue
        in_the_way = owners(sort_held_locks(locks_needed_for(event), held)[0])
        expected = {
            owner for owner, paths in running.items() if any(overlap(one, two) for one in event for two in paths)
        }
        assert in_the_way == expected
        if not in_the_way:
            running[f"action-{number}"] = event
            held += holds(f"action-{number}", *event)
    for one, two in product(running, running):
        assert one == two or not any(overlap(a, b) for a in running[one] for b in running[two])
