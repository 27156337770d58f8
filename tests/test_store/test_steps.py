"""Moves within an action: by rows, all or none, only of locked objects; and what a family's hooks may do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import pytest
import sqlalchemy as sa
from pydantic import BaseModel

from domain import registry
from domain.errors import Category, Refused
from domain.model import (
    ActionEnding,
    ActionResult,
    Grant,
    Move,
    NewObject,
    Outcome,
    Request,
    Step,
    StepResult,
)
from domain.statetable import NONE
from store import audit
from store.begin import begin_action
from store.hooks import AdmissionFacts, GrantExtras, Hooks, MaybeObjectRow
from tests.test_store.driver import EVERYBODY, FRONT_1, FRONT_2, WEB, StoreDriver, claim, group

GUEST = f"{WEB}:vm:guest"
OTHER = "ns:default:mci:other"


async def take(driver: StoreDriver, grant: Grant, *moves: Move) -> StepResult:
    step = Step(path=grant.path, epoch=grant.epoch, at=driver.now(), moves=list(moves))
    return await driver.inventory.apply_step(step)


async def refining(driver: StoreDriver, run: str = "") -> Grant:
    """An action on the group that has begun, but not for the two VMs that run."""
    broken = f"{WEB}:vm:broken-1"
    await driver.make(WEB, group(), group("broken", 1))
    stopping = await driver.grant(broken, "suspend")
    await driver.land(stopping, "", {broken: ("Failed", "no answer")})
    await driver.finish(stopping)
    return await driver.grant(WEB, "refine", run)


def suspending(path: str, **more: Any) -> Move:
    return Move(path=path, to="Suspending", action="suspend", **more)


async def test_an_action_takes_what_is_below_it_along_by_the_rows_of_its_own_table(driver: StoreDriver) -> None:
    grant = await refining(driver)
    assert (await take(driver, grant, suspending(FRONT_1), suspending(FRONT_2))).made
    view = await driver.inventory.read_object(FRONT_1)
    assert (view.status, view.previous_status) == ("Suspending", "Running")
    assert (view.target_action, view.target_status, view.epoch) == ("suspend", "Suspended", grant.epoch)
    assert (await take(driver, grant, Move(path=FRONT_1, to="Suspended", action="suspend"))).made
    view = await driver.inventory.read_object(FRONT_1)
    assert (view.status, view.target_action) == ("Suspended", NONE)


async def test_moves_are_made_all_or_none(driver: StoreDriver) -> None:
    grant = await refining(driver)
    stepped = await take(driver, grant, suspending(FRONT_1), Move(path=FRONT_2, to="Resuming", action="resume"))
    assert not stepped.made
    assert stepped.refusals == [f"{FRONT_2} to Resuming: ignored: no row leads there"]
    assert {await driver.status(FRONT_1), await driver.status(FRONT_2)} == {"Running"}
    line = await driver.last(FRONT_2)
    assert (line.effect, line.message) == ("ignored", "ignored: no row leads there")


async def test_a_refused_step_whose_answer_was_lost_is_told_once_and_refused_alike(driver: StoreDriver) -> None:
    grant = await refining(driver)
    noise = Move(path=WEB, to="?", message="noise: this action takes no such signal")
    step = Step(path=grant.path, epoch=grant.epoch, at=driver.now(), moves=[noise], key="run 1")
    answers = [await driver.inventory.apply_step(step) for _ in range(2)]
    assert answers[0] == answers[1]
    assert not answers[0].made
    await driver.inventory.apply_step(step.model_copy(update={"key": "run 2"}))
    lines = [line for line in await driver.inventory.read_history(WEB, 100) if line.effect == "ignored"]
    assert len(lines) == 2, "one of each key"


async def test_a_step_taken_twice_is_found_made(driver: StoreDriver) -> None:
    grant = await refining(driver)
    await take(driver, grant, suspending(FRONT_1, info={"why": "asked"}))
    before = (await driver.told(FRONT_1), await driver.inventory.read_object(FRONT_1))
    assert (await take(driver, grant, suspending(FRONT_1, info={"why": "asked"}))).made
    again = await driver.inventory.read_object(FRONT_1)
    assert (await driver.told(FRONT_1), again.model_copy(update={"changed_at": before[1].changed_at})) == before


@pytest.mark.parametrize("last", ["Suspended", "Terminating", NONE])
async def test_a_step_of_several_moves_of_one_object_taken_twice_is_found_made(driver: StoreDriver, last: str) -> None:
    grant = await refining(driver)
    moves = [suspending(FRONT_1), Move(path=FRONT_1, to="Suspended", action="suspend", info={"why": "asked"})]
    if last != "Suspended":
        moves.append(Move(path=FRONT_1, to="Terminating", action="terminate"))
    if last == NONE:
        moves += [
            Move(path=FRONT_1, to=to, action=action)
            for action, to in (("terminate", "Failed"), ("refine", "Terminating"), ("refine", NONE))
        ]
    first = await take(driver, grant, *moves)
    assert first.made, first.refusals
    before = await driver.told(FRONT_1)
    again = await take(driver, grant, *moves)
    assert again.made, again.refusals
    assert await driver.told(FRONT_1) == before
    assert (await driver.statuses()).get("front-1", NONE) == last


async def test_an_object_may_come_into_being_and_go_by_moves(driver: StoreDriver) -> None:
    grant = await refining(driver)
    born = Move(path=GUEST, to="Creating", action="create", info={"a": 1, "b": 2}, spec={"size": "small"})
    assert (await take(driver, grant, born)).made
    view = await driver.inventory.read_object(GUEST)
    assert (view.status, view.kind, view.info, view.spec) == ("Creating", "vm", {"a": 1, "b": 2}, {"size": "small"})
    assert (await take(driver, grant, Move(path=GUEST, to="Failed", action="create", error="no luck"))).made
    assert (await driver.inventory.read_object(GUEST)).error == "no luck"
    entered = Move(path=GUEST, to="Terminating", action="refine", info={"a": None})
    assert (await take(driver, grant, entered)).made
    assert (await driver.inventory.read_object(GUEST)).info == {"b": 2}
    assert (await take(driver, grant, Move(path=GUEST, to=NONE, action="refine"))).made
    assert "guest" not in await driver.statuses()
    assert (await driver.told(GUEST))[-1] == ("refine", "Terminating", NONE)


BELOW_AN_ACCOUNT = {"cloudspace": "cloudspace:dev", "machine": "cloudspace:dev:machine:db", "disk": "disk:d1"}


def births() -> Iterator[tuple[str, str, str, str]]:
    """Kind, vacant status, action and status *while*, of every creation whose name may have been used before."""
    for name, kind in registry.KINDS.items():
        for row in kind.table.rows if name in BELOW_AN_ACCOUNT else ():
            if row.source == NONE and row.during and row.then != NONE:
                yield from ((name, vacant, row.action, row.during) for vacant in kind.table.vacant_statuses)


def test_every_kind_that_leaves_its_name_behind_is_tried_below() -> None:
    """Those that are nobody's part are created by an action of their own alone."""
    vacant = {name for name, kind in registry.KINDS.items() if kind.table.vacant_statuses}
    assert vacant == {*BELOW_AN_ACCOUNT, "account", "image", "node"}


@pytest.mark.parametrize(("kind", "vacant", "action", "during"), list(births()))
async def test_a_step_creates_what_has_the_name_of_something_that_is_gone_for_good(
    driver: StoreDriver, kind: str, vacant: str, action: str, during: str
) -> None:
    account, path = "account:a", f"account:a:{BELOW_AN_ACCOUNT[kind]}"
    await driver.act(account, "create", "")
    grant = await driver.grant(account, "disable")
    created = Move(path=path, to=during, action=action, spec={"size": 1}, info={"old": True})
    [birth] = [row for row in registry.find_kind(kind).table.rows if (row.action, row.source) == (action, NONE)]
    destroyed = [(birth.then, action), ("DESTROYING", "destroy"), (vacant, "destroy")]
    ways = [created, *(Move(path=path, to=to, action=by) for to, by in destroyed)]
    for way in ways:
        assert (await take(driver, grant, way)).made
    old = await driver.inventory.read_object(path)
    again = Move(path=path, to=during, action=action, spec={"size": 2})
    for _ in "twice":
        assert (await take(driver, grant, again)).made
    new = await driver.inventory.read_object(path)
    assert (new.status, new.previous_status, new.spec, new.info) == (during, NONE, {"size": 2}, {})
    assert new.created_at > old.created_at
    assert (await driver.told(path))[-2:] == [("destroy", "DESTROYING", vacant), (action, NONE, during)]
    assert (
        await driver.database.run_transaction(lambda connection: audit.check_store_invariants(connection, account))
    ).findings == []


async def test_what_is_gone_for_good_is_neither_discarded_nor_anything_else_by_a_step(driver: StoreDriver) -> None:
    await driver.act("account:a", "create", "")
    grant, disk = await driver.grant("account:a", "disable"), "account:a:disk:d1"
    for by, ways in (("assign", ("ASSIGNING", "ASSIGNED")), ("destroy", ("DESTROYING", "DESTROYED"))):
        for to in ways:
            assert (await take(driver, grant, Move(path=disk, to=to, action=by))).made
    for to, by in (("DESTROYING", "discard"), ("ASSIGNED", "assign"), ("ATTACHING", "attach")):
        assert not (await take(driver, grant, Move(path=disk, to=to, action=by))).made
        assert (await driver.inventory.read_object(disk)).status == "DESTROYED"


async def test_what_the_action_has_not_locked_is_not_moved(driver: StoreDriver) -> None:
    await driver.make(OTHER)
    grant = await refining(driver)
    stranger = f"{OTHER}:vm:front-1"
    stepped = await take(driver, grant, suspending(FRONT_1), suspending(stranger))
    assert stepped.refusals == [f"{stranger} to Suspending: ignored: the action no longer owns the object"]
    assert await driver.status(FRONT_1) == "Running"


async def test_an_action_that_has_ended_moves_nothing(driver: StoreDriver) -> None:
    grant = await refining(driver)
    await driver.finish(grant)
    assert not (await take(driver, grant, suspending(FRONT_1))).made
    assert await driver.status(FRONT_1) == "Running"


async def test_what_a_cut_off_action_took_along_is_brought_back(driver: StoreDriver) -> None:
    grant = await refining(driver, "cut-off")
    await take(driver, grant, suspending(FRONT_1))
    await driver.inventory.abandon_run(WEB, "cut-off", driver.now(), "killed")
    assert await driver.status(FRONT_1) == "Running"
    assert (await driver.last(FRONT_1)).action == "heal"


async def test_finish_makes_its_last_moves_and_keeps_what_the_action_leaves(driver: StoreDriver) -> None:
    grant = await refining(driver)
    ending = ActionEnding(
        epoch=grant.epoch,
        run=grant.run,
        path=WEB,
        result=ActionResult.SUCCEEDED,
        at=driver.now(),
        info={"seen": True},
        spec={"new": 1},
        moves=[Move(path=GUEST, to="Creating", action="create"), Move(path=GUEST, to="Failed", action="create")],
    )
    await driver.inventory.finish_action(ending)
    view = await driver.inventory.read_object(WEB)
    assert (view.info["seen"], view.spec, view.target_action) == (True, {"new": 1}, NONE)
    assert (await driver.statuses())["guest"] == "Failed"


async def test_an_end_that_no_row_allows_is_not_taken(driver: StoreDriver) -> None:
    grant = await refining(driver)
    ending = ActionEnding(
        epoch=grant.epoch, run=grant.run, path=WEB, result=ActionResult.SUCCEEDED, at=driver.now(), to="Flying"
    )
    await driver.inventory.finish_action(ending)
    assert (await driver.inventory.read_object(WEB)).phase == "Running"
    line = await driver.last(WEB)
    assert "no row leads there: Flying" in line.message
    assert (line.source, line.to, line.effect) == ("Terminating", "Running", "abandoned")  # it ended all the same


# Hooks.


@pytest.fixture
def hooks(driver: StoreDriver) -> dict[str, Hooks]:
    """The hooks of this test's inventory."""
    return driver.hooks


class Told(BaseModel):
    row: str


def admit(found: list[MaybeObjectRow]) -> Any:
    def decide(connection: sa.Connection, facts: AdmissionFacts) -> GrantExtras:
        found.append(facts.object_row)
        if facts.claim.request.reason == "no":
            raise Refused(Category.QUOTA, "the family says no", "ask again")
        return GrantExtras(details=Told(row=facts.row.action), info={"ridden": True})

    return decide


async def test_a_hook_may_refuse_and_then_nothing_is_written(driver: StoreDriver, hooks: dict[str, Hooks]) -> None:
    await driver.make()
    hooks["mci"] = Hooks(admit=admit([]))
    before = await driver.dump()
    refusal = await driver.refusal(WEB, "suspend", reason="no")
    assert (refusal.category, refusal.message, refusal.hint) == (Category.QUOTA, "the family says no", "ask again")
    assert await driver.dump() == before


async def test_a_hook_tells_the_workflow_and_keeps_facts(driver: StoreDriver, hooks: dict[str, Hooks]) -> None:
    await driver.make()
    seen: list[MaybeObjectRow] = []
    hooks["mci"] = Hooks(admit=admit(seen))
    grant = await driver.grant(WEB, "suspend", "the-run")
    assert grant.details == {"row": "suspend"}
    assert seen[0] is not None
    assert seen[0].path == WEB
    assert (await driver.inventory.read_object(WEB)).info["ridden"] is True
    assert (await driver.grant(WEB, "suspend", "the-run")).details == {"row": "suspend"}  # asked again: the same


async def test_a_hook_may_lock_more_and_a_conflict_there_refuses(driver: StoreDriver, hooks: dict[str, Hooks]) -> None:
    def locks(connection: sa.Connection, request: Request, thing: MaybeObjectRow) -> Sequence[str]:
        return [OTHER]

    await driver.make()
    await driver.make(OTHER)
    hooks["vm"] = Hooks(extra_locks=locks)
    grant = await driver.grant(FRONT_1, "suspend")
    held = {(hold.path, hold.mode.value) for hold in await driver.inventory.list_locks("")}
    assert held == {("ns:default", "IX"), (WEB, "IX"), (FRONT_1, "X"), (OTHER, "X")}
    refusal = await driver.refusal(OTHER, "suspend")
    assert FRONT_1 in refusal.message
    assert FRONT_1 in (await driver.refusal(FRONT_2, "suspend")).message
    moved = await take(driver, grant, suspending(f"{OTHER}:vm:front-1"))
    assert moved.made
    await driver.finish(grant)
    assert await driver.inventory.list_locks("") == []
    assert await driver.status(f"{OTHER}:vm:front-1") == "Running"  # left under way: brought back


async def test_what_a_hook_locks_more_is_serialised_as_well(pair: tuple[StoreDriver, StoreDriver]) -> None:
    """On PostgreSQL: the facts of its decision hold until they are written."""
    hooks = {"vm": Hooks(extra_locks=lambda *_: [OTHER])}

    def locked(connection: sa.Connection) -> int:
        begin_action(connection, hooks, claim(FRONT_1, "suspend"), EVERYBODY)
        mine = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
        return int(connection.execute(sa.text(mine)).scalar_one())

    assert await pair[0].database.run_transaction(locked) == len({"ns:default", WEB, FRONT_1, OTHER})


async def test_a_hook_bears_objects_of_other_kinds(driver: StoreDriver, hooks: dict[str, Hooks]) -> None:
    def bear(connection: sa.Connection, facts: AdmissionFacts) -> GrantExtras:
        return GrantExtras(new_objects=[NewObject(GUEST, "vm", "", {"born": "with it"})])

    hooks["mci"] = Hooks(admit=bear)
    await driver.make()
    view = await driver.inventory.read_object(GUEST)
    assert view.spec == {"born": "with it"}
    assert (await driver.told(GUEST))[0] == ("create", NONE, "Creating")


async def test_where_an_object_is_does_not_make_it_a_target_that_must_be_landed(
    driver: StoreDriver, hooks: dict[str, Hooks]
) -> None:
    """Only members of a group are landed one by one; any other object ends with its action, wherever it is."""

    def place(connection: sa.Connection, facts: AdmissionFacts) -> GrantExtras:
        return GrantExtras(placement="store/cellar", spec={})

    hooks["disk"] = Hooks(admit=place)
    for action, to in (("create", "CREATED"), ("delete", "DELETED")):
        grant = await driver.grant("account:acme:disk:d1", action)
        assert (grant.targets, grant.chunks) == (0, [])
        outcome = await driver.finish(grant)
        assert (outcome.result, outcome.status, outcome.done) == (ActionResult.SUCCEEDED, to, 0)
    assert (await driver.inventory.read_object("account:acme:disk:d1")).placement == "store/cellar"


async def test_a_hook_hears_of_steps_and_of_the_end_in_the_same_transaction(
    driver: StoreDriver, hooks: dict[str, Hooks]
) -> None:
    heard: list[str] = []

    def moved(connection: sa.Connection, step: Step) -> None:
        heard.extend(f"{move.path} {move.to}" for move in step.moves)
        if "bad" in step.moves[0].message:
            raise Refused(Category.INVALID, "the parts do not fit")

    def ended(connection: sa.Connection, grant: Grant, outcome: Outcome, at: datetime) -> None:
        heard.append(f"{grant.path} {outcome.result}")

    grant = await refining(driver, "first")
    hooks["mci"] = Hooks(after_step=moved, on_finish=ended)
    await take(driver, grant, suspending(FRONT_1))
    taken_back = await take(driver, grant, suspending(FRONT_2, message="bad"))
    assert taken_back == StepResult(made=False, refusals=["the parts do not fit"])
    assert await driver.status(FRONT_2) == "Running"
    await driver.inventory.abandon_run(WEB, "first", driver.now(), "killed")
    await driver.finish(await driver.grant(WEB, "suspend"))
    assert [heard[0], *heard[-2:]] == [f"{FRONT_1} Suspending", f"{WEB} failed", f"{WEB} failed"]
