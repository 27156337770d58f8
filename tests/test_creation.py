"""create makes a new object, and with force it is refused on an existing one, in every family."""

from __future__ import annotations

from domain.registry import KINDS
from domain.statetable import Actor, StateTable
from tests.cases import every_case
from tests.test_statetable import CREATIONS, TABLES, UNHEARD_OF, label, named


@every_case("table", TABLES, ids=label)
def test_force_never_makes_a_creation_act_on_what_exists(table: StateTable) -> None:
    for action in (action for action in table.user_actions if action in CREATIONS):
        assert table.is_creation(action)
        for status in (*table.statuses, UNHEARD_OF):
            plain, forced = (table.judge(status, action, force=force) for force in (False, True))
            assert forced == plain, (status, action)
            if not named(table, status, action, Actor.USER, force=True):
                assert forced.reason == f"{table.label} exists already, under {status}"


def test_what_changes_an_object_as_well_as_making_it_is_no_creation() -> None:
    asked = [(kind.table, verb.action) for kind in KINDS.values() for verb in kind.verbs]
    assert [action in CREATIONS for _, action in asked] == [table.is_creation(action) for table, action in asked]
