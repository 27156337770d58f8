"""State tables: every row, the refusal of everything else, the derived sets, and the renderings.

The tests run over every registered table, so that a new family is held to the same law without a line here.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domain import rendering
from domain.errors import Category, Refused
from domain.registry import KINDS
from domain.statetable import NONE, SAME, Actor, Row, Ruling, StateTable, Verdict
from tests.cases import every_case

TABLES = [kind.table for kind in KINDS.values()]
STRANGER = "Stranger"  # an actor that no row names
ACTORS = [*Actor, STRANGER]
UNHEARD_OF = "Sleepwalking"  # a status that no row names
CREATIONS = ("create", "add")  # as the families call it

Question = tuple[StateTable, str, str, str, bool]


def questions(table: StateTable) -> list[Question]:
    """Everything that can be asked of a table."""
    actions = dict.fromkeys(row.action for row in table.rows)
    statuses = (NONE, *table.statuses, UNHEARD_OF)
    actors = dict.fromkeys(map(str, (*ACTORS, *(row.actor for row in table.rows))))
    return [(table, *asked) for asked in product(statuses, actions, actors, (False, True))]


def named(table: StateTable, status: str, action: str, actor: str, force: bool) -> list[Row]:
    """The rows that say yes in so many words."""
    return [
        row
        for row in table.rows
        if (row.source, row.action, row.actor) == (status, action, actor) and (force or not row.force)
    ]


def forcible(table: StateTable, status: str, action: str, actor: str, force: bool) -> bool:
    """Does force, and nothing else, open the way? Never for others than users, never out of nothing or of an end."""
    over = {row.action for row in table.rows if row.during and row.source != NONE and row.actor == Actor.USER}
    left = {row.source for row in table.rows if row.during and row.then not in (NONE, SAME)}  # no way on
    at_rest = {word for row in table.rows for word in (row.source, row.then, row.otherwise) if word != SAME}
    ended = at_rest - left - {row.during for row in table.rows} - set(table.passing_statuses)
    over -= set(CREATIONS)  # force never makes a creation act on what exists
    return force and actor == Actor.USER and action in over and status != NONE and status not in ended


def label(value: object) -> str:
    if isinstance(value, StateTable):
        return value.label
    if isinstance(value, Row):
        return f"{value.action}-{value.source}-{value.actor}-{value.then}"
    return {True: "force", False: "plain"}.get(value, str(value)) if isinstance(value, bool) else str(value)


ROWS = [(table, row) for table in TABLES for row in table.rows]


@cache
def parts() -> tuple[list[Question], list[Question], list[Question]]:
    """All questions: what a row names, what only force opens, what is refused."""
    found: tuple[list[Question], list[Question], list[Question]] = ([], [], [])
    for question in (question for table in TABLES for question in questions(table)):
        found[0 if named(*question) else 1 if forcible(*question) else 2].append(question)
    return found


def test_the_three_parts_of_the_complement_are_worth_testing() -> None:
    by_rows, by_force, refused = map(len, parts())
    assert by_rows + by_force + refused == sum(len(questions(table)) for table in TABLES)
    assert min(by_rows, by_force) > 20
    assert refused > (by_rows + by_force + refused) / 2


@every_case(("table", "row"), ROWS, ids=label)
def test_every_row_is_open_to_its_actor(table: StateTable, row: Row) -> None:
    verdict = table.judge(row.source, row.action, row.actor, row.force)
    first = named(table, row.source, row.action, row.actor, row.force)[0]
    assert verdict.row == first
    idle = first.during is None and first.success_status(row.source) == row.source and not first.hidden
    assert verdict.ruling is (Ruling.ALREADY if idle else Ruling.GO)


@pytest.mark.parametrize(("table", "row"), [(t, row) for t, row in ROWS if row.force], ids=label)
def test_a_row_for_force_is_closed_without_it(table: StateTable, row: Row) -> None:
    verdict = table.judge(row.source, row.action, row.actor)
    assert verdict.ruling is Ruling.REFUSED
    assert verdict.reason == f"{row.action} is not allowed for {table.label} under {row.source} without force"


@every_case("table", TABLES, ids=label)
def test_what_no_row_names_is_refused_and_says_why(table: StateTable) -> None:
    asked = [question[1:] for question in parts()[2] if question[0] is table]
    told = {question: Verdict(Ruling.REFUSED, None, refusal(table, *question[:3])) for question in asked}
    assert {question: table.judge(*question) for question in asked} == told


def refusal(table: StateTable, status: str, action: str, actor: str) -> str:
    """The words of the rules, and which of them apply."""
    takers = {row.actor for row in table.rows if row.action == action and row.source == status}
    births_only = {row.source for row in table.rows if row.action == action} == {NONE}
    if takers and actor not in takers and (status != NONE or actor != Actor.USER):
        return f"{action} is not for {actor} on {table.label} under {status}"
    if takers and actor in takers:
        return f"{action} is not allowed for {table.label} under {status} without force"
    if status == NONE:
        return f"there is no such {table.label}"
    if births_only or action in CREATIONS:
        return f"{table.label} exists already, under {status}"
    return f"{action} is not allowed for {table.label} under {status}"


@every_case("table", TABLES, ids=label)
def test_force_takes_the_actions_own_row_from_any_other_status(table: StateTable) -> None:
    wrong = {}
    for _, status, action, actor, force in (asked for asked in parts()[1] if asked[0] is table):
        verdict, plain = table.judge(status, action, actor, force), table.judge(status, action, actor, force=False)
        row = verdict.row
        own = row is not None and (row.action, row.actor) == (action, Actor.USER) and row.source != NONE
        if not (own and verdict.ruling is Ruling.GO and plain.ruling is Ruling.REFUSED):
            wrong[status, action] = verdict, plain
    assert wrong == {}


@every_case("table", TABLES, ids=label)
def test_an_action_that_nobody_knows_is_refused_with_those_that_there_are(table: StateTable) -> None:
    with pytest.raises(Refused) as caught:
        table.judge((*table.stable_statuses, NONE)[0], "explode")
    assert caught.value.category is Category.INVALID
    assert caught.value.message == f"unknown action 'explode' for {table.label}"
    assert caught.value.hint == "actions are: " + ", ".join(table.user_actions)


@every_case("table", TABLES, ids=label)
def test_no_two_actions_of_one_actor_compete_for_a_status(table: StateTable) -> None:
    keys = [(row.action, row.source, row.actor) for row in table.rows if row.during]
    assert len(keys) == len(set(keys))


@every_case("table", TABLES, ids=label)
def test_an_action_and_its_transitional_status_lead_to_one_end(table: StateTable) -> None:
    """A target under way is landed, and brought back, by (action, while, from)."""
    ends: dict[tuple[str, str, str], set[tuple[str, str | None]]] = {}
    for row in table.rows:
        if row.during:
            ends.setdefault((row.action, row.during, row.source), set()).add((row.then, row.otherwise))
    assert all(len(found) == 1 for found in ends.values()), ends


@every_case("table", TABLES, ids=label)
def test_every_action_row_has_a_way_to_fail(table: StateTable) -> None:
    assert [row for row in table.rows if row.during and row.otherwise is None] == []


@every_case("table", TABLES, ids=label)
def test_the_derived_sets_divide_the_statuses(table: StateTable) -> None:
    assert set(table.stable_statuses) | set(table.transitional_statuses) == set(table.statuses)
    assert set(table.stable_statuses) & set(table.transitional_statuses) == set(table.transitional_resting_statuses)
    assert set(table.always_transitional_statuses).isdisjoint(table.transitional_resting_statuses)
    assert set(table.final_statuses) <= set(table.stable_statuses)
    assert {row.otherwise for row in table.rows} - {None, NONE, SAME} <= set(table.stable_statuses)
    assert {NONE, SAME}.isdisjoint(table.statuses)


@every_case("table", TABLES, ids=label)
def test_what_is_allowed_is_what_a_user_can_start(table: StateTable) -> None:
    for status, force in product((NONE, *table.statuses, UNHEARD_OF), (False, True)):
        rows = [(row.action, named(table, status, row.action, Actor.USER, force)) for row in table.rows]
        open_rows = {action for action, found in rows if any(row.during or row.hidden for row in found)}
        forced = {action for action in table.user_actions if forcible(table, status, action, Actor.USER, force)}
        already = {action for action, found in rows if found and not found[0].during and not found[0].hidden}
        assert set(table.allowed_actions(status, force)) == (open_rows | forced) - already, (status, force)


# How a row ends.

WORDS = ("Up", "Down", "Gone", "Busy", "Moving")
HOP = Row("hop", "Up", "Busy", "Down", "Gone")
STAY = Row("stay", "Up", "Busy", SAME, SAME)
TICK = Row("tick", "Up", None, "Down", actor=Actor.CLOUD)
TOY = StateTable("toy", "Toy", (Row("make", NONE, "Moving", "Up", "Gone"), HOP, STAY, TICK))


@pytest.mark.parametrize("came_from", ["Up", "Down"])
def test_same_is_the_status_it_came_from(came_from: str) -> None:
    assert (HOP.success_status(came_from), HOP.failure_status(came_from)) == ("Down", "Gone")
    assert (STAY.success_status(came_from), STAY.failure_status(came_from)) == (came_from, came_from)
    assert TICK.failure_status(came_from) == came_from  # a row without an else has changed nothing


def test_a_step_that_ends_where_it_began_has_nothing_to_do() -> None:
    table = StateTable("toy", "Toy", (Row("end", "Gone", None, SAME), Row("end", "Up", "Busy", "Gone", SAME)))
    assert table.judge("Gone", "end").ruling is Ruling.ALREADY
    assert table.judge("Gone", "end", force=True).ruling is Ruling.ALREADY
    assert table.judge("Up", "end").ruling is Ruling.GO
    assert table.allowed_actions("Gone") == ()


def test_an_action_that_ends_where_it_began_still_goes() -> None:
    assert TOY.judge("Up", "stay") == Verdict(Ruling.GO, STAY)


@pytest.mark.parametrize(
    ("status", "to", "actor", "ruling"),
    [
        ("Up", "Down", Actor.CLOUD, Ruling.GO),
        ("Up", "Down", Actor.USER, Ruling.REFUSED),  # the wrong actor
        ("Down", "Up", Actor.CLOUD, Ruling.REFUSED),  # the wrong way
        ("Up", "Gone", Actor.CLOUD, Ruling.REFUSED),  # nowhere near
        ("Up", "Busy", Actor.USER, Ruling.REFUSED),  # an action is no step
    ],
)
def test_a_step_is_for_its_actor_and_its_statuses_only(status: str, to: str, actor: str, ruling: Ruling) -> None:
    verdict = TOY.judge_step(status, to, actor)
    assert verdict.ruling is ruling
    told = f"no row lets {actor} move Toy from {status} to {to}"
    assert verdict.reason == (told if ruling is Ruling.REFUSED else "")


@every_case(("table", "row"), [(t, row) for t, row in ROWS if row.during], ids=label)
def test_a_target_lands_where_its_row_leads_or_where_the_cloud_finds_it(table: StateTable, row: Row) -> None:
    assert row.during
    legal = {row.success_status(row.source), row.failure_status(row.source)} | {
        step.then for step in table.rows if step.source == row.during and step.actor == Actor.CLOUD
    }
    for to in (NONE, *table.statuses, UNHEARD_OF):
        assert table.can_land(row.action, row.during, row.source, to) is (to in legal), to


@every_case(("table", "row"), [(t, row) for t, row in ROWS if row.during], ids=label)
def test_a_target_does_not_land_as_another_action_would(table: StateTable, row: Row) -> None:
    assert row.during
    if row.during in table.passing_statuses:
        return  # other actions pass through it, and land from there
    observed = {step.then for step in table.rows if step.source == row.during and step.actor == Actor.CLOUD}
    mine = {other.action for other in table.rows if other.during == row.during}
    for action in {other.action for other in table.rows} - mine:
        for to in set(table.statuses) - observed:
            assert not table.can_land(action, row.during, row.source, to)


@every_case(("table", "row"), [(t, row) for t, row in ROWS if row.during], ids=label)
def test_what_was_abandoned_goes_back_or_has_failed_to_come_into_being(table: StateTable, row: Row) -> None:
    assert row.during
    back = table.recovery_status(row.action, row.source)
    assert back == (row.source if row.source in table.stable_statuses else row.otherwise)
    assert back in (NONE, *table.stable_statuses)  # what never came into being may leave nothing behind


def test_what_was_forced_out_of_a_status_that_no_row_names_goes_back_there() -> None:
    assert TOY.recovery_status("start", "Down") == "Down"


# Renderings: parsed back, they must say what the rows say.


def parsed_markdown(text: str) -> list[Row]:
    heading, rule, *lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    assert heading == ["action", "from", "while", "then", "else", "actor"]
    assert set(rule) == {"---"}
    words = {"(none)": NONE, "(same)": SAME}

    def word(cell: str) -> str | None:
        return None if cell == "-" else words.get(cell, cell)

    rows = []
    for action, source, during, then, otherwise, actor in lines:
        name, _, mark = action.partition(" (")
        words_of = (name, str(word(source)), word(during), str(word(then)), word(otherwise), actor)
        rows.append(Row(*words_of, force=mark == "force)", hidden=mark == "hidden)"))
    return rows


def parsed_mermaid(text: str) -> set[tuple[str, str, str]]:
    first, *lines = text.splitlines()
    assert first == "stateDiagram-v2"
    edges = [re.fullmatch(r"    (\S+) --> (\S+?)(?:: (.+))?", line) for line in lines]
    assert all(edges), text
    found = [(edge[1], edge[2], edge[3] or "") for edge in edges if edge]
    assert len(found) == len(set(found)), "an edge is drawn twice"
    return set(found)


def drawn(table: StateTable) -> set[tuple[str, str, str]]:
    """What the diagram must show, from the rows."""
    edges = {(status, "[*]", "") for status in table.final_statuses}
    for row in table.rows:
        if row.during and row.actor in (Actor.USER, Actor.GROUP):
            source = "[*]" if row.source == NONE else row.source
            then = "[*]" if row.then == NONE else row.then
            edges.add((source, row.during, f"{row.action} (force)" if row.force else row.action))
            edges.add((row.during, row.source if row.then == SAME else then, "done"))
            if row.otherwise and row.otherwise != SAME:
                edges.add((row.during, row.otherwise, "failed"))
    return edges


@every_case("table", TABLES, ids=label)
def test_the_markdown_table_says_what_the_rows_say(table: StateTable) -> None:
    told = [replace(row, target=None, rests=False) for row in table.rows]  # what is shown meanwhile is not in the table
    assert parsed_markdown(rendering.markdown_table(table)) == told


@every_case("table", TABLES, ids=label)
def test_rows_that_are_merged_for_readers_say_the_same(table: StateTable) -> None:
    merged = [
        (action, each, *rest) for action, sources, *rest in rendering.merged_rows(table) for each in sources.split(", ")
    ]
    assert sorted(merged) == sorted(map(rendering.row_cells, table.rows))


@every_case("table", TABLES, ids=label)
def test_the_diagram_shows_what_the_rows_say(table: StateTable) -> None:
    assert parsed_mermaid(rendering.mermaid_diagram(table)) == drawn(table)


# Tables that nobody wrote.

statuses = st.sampled_from(WORDS)
rows = st.builds(
    Row,
    action=st.sampled_from(("hop", "stay", "end")),
    source=st.one_of(st.just(NONE), statuses),
    during=st.one_of(st.none(), statuses),
    then=st.one_of(st.just(SAME), statuses),
    otherwise=st.one_of(st.none(), st.just(SAME), statuses),
    actor=st.sampled_from(Actor),
    force=st.booleans(),
)
tables = st.builds(StateTable, st.just("toy"), st.just("Toy"), st.lists(rows, max_size=8).map(tuple))


@settings(deadline=None)
@given(
    table=tables,
    status=st.sampled_from((NONE, UNHEARD_OF, *WORDS)),
    action=st.sampled_from(("hop", "stay", "end", "explode")),
    actor=st.sampled_from(ACTORS),
    force=st.booleans(),
)
def test_any_table_goes_only_where_a_row_or_force_allows(
    table: StateTable, status: str, action: str, actor: str, force: bool
) -> None:
    if action not in {row.action for row in table.rows}:
        with pytest.raises(Refused, match="unknown action"):
            table.judge(status, action, actor, force)
        return
    verdict = table.judge(status, action, actor, force)
    allowed = named(table, status, action, actor, force)
    if verdict.ruling is Ruling.REFUSED:
        assert verdict.reason
        assert verdict.row is None
        assert not allowed
        return
    assert verdict.row
    assert not verdict.reason
    assert allowed or forcible(table, status, action, actor, force)
    if allowed:
        assert verdict.row == allowed[0]
        assert (verdict.ruling is Ruling.ALREADY) == (not verdict.row.during and verdict.row.then in (SAME, status))


@settings(deadline=None)
@given(table=tables)
def test_any_table_derives_sets_that_hold_together(table: StateTable) -> None:
    assert set(table.stable_statuses) | set(table.transitional_statuses) == set(table.statuses)
    assert set(table.stable_statuses) & set(table.transitional_statuses) == set(table.transitional_resting_statuses)
    assert set(table.always_transitional_statuses).isdisjoint(table.transitional_resting_statuses)
    assert set(table.final_statuses) <= set(table.stable_statuses)
    for status in table.final_statuses:
        for action in table.allowed_actions(status, force=True):  # a step of the user's own; force opens nothing more
            assert named(table, status, action, Actor.USER, True)


@settings(deadline=None)
@given(table=tables)
def test_any_table_can_be_read_back_from_its_renderings(table: StateTable) -> None:
    told = [replace(row, target=None, rests=False) for row in table.rows]  # what is shown meanwhile is not in the table
    assert parsed_markdown(rendering.markdown_table(table)) == told


@settings(deadline=None)
@given(table=tables, came_from=st.sampled_from((NONE, *WORDS)), action=st.sampled_from(WORDS))
def test_any_abandoned_object_goes_back_unless_it_never_was_or_was_under_way(
    table: StateTable, came_from: str, action: str
) -> None:
    back = table.recovery_status(action, came_from)
    unsafe = came_from in (NONE, *table.transitional_statuses)
    assert back == came_from or (unsafe and back in {row.otherwise for row in table.rows})
