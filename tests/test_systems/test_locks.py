"""Locks in a tree: a deploy locks its path, a teardown the root; compared with a brute-force model."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from domain.locks import HeldLock, LockMode, locks_needed_for, sort_held_locks
from domain.systems.rules import node_path
from tests.cases import every_case

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SHOP = "system:shop"


def holds(owner: str, path: str) -> list[HeldLock]:
    return [HeldLock(each, mode, owner, owner, "deploy", NOON) for each, mode in locks_needed_for([path]).items()]


def test_a_deploy_wants_what_the_document_says() -> None:
    assert locks_needed_for([node_path(SHOP, "/a/b/c/d")]) == {
        SHOP: LockMode.IX,
        f"{SHOP}:a": LockMode.IX,
        f"{SHOP}:a:b": LockMode.IX,
        f"{SHOP}:a:b:c": LockMode.IX,
        f"{SHOP}:a:b:c:d": LockMode.X,
    }
    assert locks_needed_for([SHOP]) == {SHOP: LockMode.X}


@every_case(
    ("held", "asked", "free"),
    [
        #  held     asked   side by side?
        ("/", "/", False),
        ("/", "/a", False),
        ("/", "/a/b/c", False),
        ("/a", "/", False),
        ("/a", "/a", False),
        ("/a", "/a/b", False),
        ("/a/b", "/a", False),
        ("/a/b", "/a/b/c/d", False),
        ("/a/b/c/d", "/a/b", False),
        ("/a", "/b", True),
        ("/a/b", "/a/c", True),
        ("/a/b", "/a/bc", True),
        ("/a/bc", "/a/b", True),
        ("/a/b", "/a/B", True),
        ("/a/b/c", "/a/c", True),
        ("/a", "/b/a", True),
    ],
)
def test_the_truth_table_of_deploys(held: str, asked: str, free: bool) -> None:
    found = sort_held_locks(locks_needed_for([node_path(SHOP, asked)]), holds("d1", node_path(SHOP, held)))[0]
    assert (not found) is free
    assert {hold.owner for hold in found} == (set() if free else {"d1"})
    assert (
        sort_held_locks(locks_needed_for([node_path("system:other", asked)]), holds("d1", node_path(SHOP, held)))[0]
        == []
    )


trees = st.lists(st.sampled_from(["a", "b", "bc", "B"]), max_size=4).map(lambda names: "/" + "/".join(names))


def overlap(one: str, two: str) -> bool:
    """Brute force: the same node, or one inside the other."""
    mine, theirs = [each.strip("/").split("/") if each != "/" else [] for each in (one, two)]
    return all(a == b for a, b in zip(mine, theirs, strict=False))


@settings(deadline=None, max_examples=2 * settings().max_examples)
@given(events=st.lists(st.tuples(trees, st.booleans(), st.integers(0, 50)), max_size=40))
def test_any_sequence_of_acquiring_and_releasing_agrees_with_brute_force(events: list[tuple[str, bool, int]]) -> None:
    """A path asks to be locked; or one of those that are locked is released."""
    running: dict[str, str] = {}
    held: list[HeldLock] = []
    for number, (tree, releases, which) in enumerate(events):
        if releases:
            if running:
                gone = sorted(running)[which % len(running)]
                del running[gone]
                held = [hold for hold in held if hold.owner != gone]
            continue
        expected = {name for name, other in running.items() if overlap(tree, other)}
        found = {hold.owner for hold in sort_held_locks(locks_needed_for([node_path(SHOP, tree)]), held)[0]}
        assert found == expected
        if not found:
            running[f"d{number}"] = tree
            held += holds(f"d{number}", node_path(SHOP, tree))
    assert not any(overlap(running[one], running[two]) for one, two in product(running, running) if one != two)
