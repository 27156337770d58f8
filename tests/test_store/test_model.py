"""Random begin, land, finish, takeover and abandon in any order, old runs included, against a small model."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

import sqlalchemy as sa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from domain.errors import Category
from domain.locks import locks_needed_for
from domain.mci.messages import AddVms
from domain.mci.tables import MCI, VM
from domain.model import ActionEnding, ActionResult, Admission, BeginRequest, Grant, Outcome, Request, TargetLanding
from domain.paths import parent_of
from domain.statetable import NONE, Row, Ruling, StateTable, Verdict
from store import begin, finish, land, recovery
from store.engine import Database
from store.mci import enrolment
from store.schema import history, locks, objects
from tests.test_store.driver import EVERYBODY, HOOKS, NOON, dumped, group

A, B = "ns:default:mci:a", "ns:default:mci:b"
VMS = {A: [f"{A}:vm:front-1", f"{A}:vm:front-2"], B: [f"{B}:vm:front-1"]}
PATHS = [A, B, *VMS[A], *VMS[B]]
ACTIONS = ["create", "suspend", "resume", "reboot", "terminate"]
ANYWHERE = [*VM.statuses, "Sleepwalking"]


def table_of(path: str) -> StateTable:
    return MCI if path in VMS else VM


def overlap(one: str, other: str) -> bool:
    return f"{one}:".startswith(f"{other}:") or f"{other}:".startswith(f"{one}:")


@dataclass
class Thing:
    """An object as the model knows it."""

    status: str = NONE
    came_from: str = NONE
    epoch: int = 0
    row: Row | None = None  # of the action that is under way on it


@dataclass
class Deed:
    """An action that was granted, and what became of it."""

    claim: BeginRequest
    grant: Grant
    touched: list[str]
    outcome: Outcome | None = None
    ended: bool = False


@dataclass
class World:
    things: dict[str, Thing] = field(default_factory=lambda: {path: Thing() for path in PATHS})
    deeds: list[Deed] = field(default_factory=list)

    def running(self) -> dict[str, Deed]:
        return {deed.grant.path: deed for deed in self.deeds if not deed.ended}

    def owned(self, deed: Deed) -> list[Thing]:
        """What the action still owns and has not brought to rest."""
        found = [self.things[path] for path in deed.touched]
        return [thing for thing in found if thing.epoch == deed.grant.epoch and thing.row]

    def abandon(self, deed: Deed) -> None:
        for thing in self.owned(deed):
            assert thing.row
            thing.status = thing.came_from if thing.came_from != NONE else str(thing.row.otherwise)
            thing.row = None
        deed.ended = True

    def going(self, request: Request) -> dict[str, Row] | None:
        """The rows that the action takes, by path; empty: nothing to do; None: refused."""
        own = self.verdict(request.path, request)
        if own.ruling is Ruling.REFUSED:
            return None
        if own.ruling is Ruling.ALREADY or not own.row:
            return {}
        members = VMS.get(request.path, [])
        verdicts = {path: self.verdict(path, request) for path in members}
        rows = {path: verdict.row for path, verdict in verdicts.items() if verdict.ruling is Ruling.GO and verdict.row}
        if not members or rows:
            return {request.path: own.row} | rows
        return {} if any(verdict.ruling is Ruling.ALREADY for verdict in verdicts.values()) else None

    def verdict(self, path: str, request: Request) -> Verdict:
        return table_of(path).judge(self.things[path].status, request.action, force=request.force)


class Lives(RuleBasedStateMachine):
    def __init__(self, template: Path, folder: Path, kept: list[sa.Engine]) -> None:
        """`kept`: the engine of the lives before, which knows the statements; a new one compiles them anew."""
        super().__init__()
        file = folder / "lives.db"
        for left in ("", "-wal", "-shm"):
            file.with_name(f"{file.name}{left}").unlink(missing_ok=True)
        shutil.copy(template, file)
        self.database = Database(f"sqlite:///{file}")
        kept[:] = kept or [self.database.engine]
        self.database.engine = kept[0]
        self.world = World()
        self.runs = count(1)
        self.epochs: dict[str, int] = {}

    def teardown(self) -> None:
        self.database.run_transaction_blocking(legal_history)
        self.database.close()

    def dump(self) -> object:
        return self.database.run_transaction_blocking(dumped)

    def ask(self, claim: BeginRequest) -> Admission:
        return self.database.run_transaction_blocking(
            partial(begin.begin_action, hooks=HOOKS, access=EVERYBODY, claim=claim)
        )

    @initialize()
    def create(self) -> None:
        for path in VMS:
            self.begin(path, "create", force=False)
            self.go_well(0)

    @rule(path=st.sampled_from(PATHS), action=st.sampled_from(ACTIONS), force=st.booleans())
    def begin(self, path: str, action: str, force: bool) -> None:
        if action == "create" and path not in VMS:
            return
        spec = {"subGroups": [group(size=len(VMS[path]))]} if action == "create" else None
        request = Request(path=path, action=action, force=force, spec=spec)
        claim = BeginRequest(request=request, run=f"run-{next(self.runs)}", at=NOON)
        before, running = self.dump(), self.world.running()
        admission = self.ask(claim)
        others = {owner for owner in running if overlap(owner, path) and owner != path}
        if others:
            assert admission.refusal
            assert admission.refusal.category is Category.CONFLICT
            assert {holder.owner for holder in admission.refusal.holders} == others
            assert self.dump() == before
            return
        if path in running:
            self.world.abandon(running[path])
        going = self.world.going(request)
        if going is None:
            assert admission.refusal
            assert admission.refusal.category in (Category.NOT_ALLOWED, Category.NOT_FOUND)
        else:
            self.admitted(claim, admission, going)
        if not going and path not in running:
            assert self.dump() == before

    def admitted(self, claim: BeginRequest, admission: Admission, going: dict[str, Row]) -> None:
        grant = admission.grant
        assert grant
        if going and claim.request.action == "create":
            grant = self.born(grant)
        assert grant.ruling is (Ruling.GO if going else Ruling.ALREADY)
        assert grant.targets == len([path for path in going if path not in VMS])
        for path, row in going.items():
            thing = self.world.things[path]
            thing.came_from, thing.status = thing.status, "Creating" if row.source == NONE else str(row.during)
            thing.epoch, thing.row = grant.epoch, row
        if going:
            assert all(grant.epoch > deed.grant.epoch for deed in self.world.deeds)
            self.world.deeds.append(Deed(claim, grant, list(going)))

    def born(self, grant: Grant) -> Grant:
        """A creation goes on at once until its VMs are there; doing so twice changes nothing."""
        order = AddVms(path=grant.path, epoch=grant.epoch, action="create", at=NOON)
        found = self.database.run_transaction_blocking(partial(enrolment.add_vms_to_action, order=order))
        before = self.dump()
        assert self.database.run_transaction_blocking(partial(enrolment.add_vms_to_action, order=order)) == found
        assert self.dump() == before
        return grant.model_copy(update={"chunks": found.chunks, "targets": found.targets})

    @rule(which=st.integers(0, 50))
    def begin_again(self, which: int) -> None:
        """As after a crash between begin and its answer; the run may even be dead by now."""
        if deed := self.pick(which):
            before = self.dump()
            assert self.ask(deed.claim).grant == deed.grant
            assert self.dump() == before

    @rule(which=st.integers(0, 50))
    def go_well(self, which: int) -> None:
        """All targets come out as ordered, and the action ends."""
        if deed := self.pick(which):
            row = next(row for row in VM.rows if row.action == deed.grant.action and row.during)
            self.land(0, row.then, "", deed)
            self.finish(0, ActionResult.SUCCEEDED, deed)

    @rule(which=st.integers(0, 50), to=st.sampled_from(ANYWHERE), error=st.sampled_from(["", "stubborn"]))
    def land(self, which: int, to: str, error: str, deed: Deed | None = None) -> None:
        deed = deed or self.pick(which)
        if not deed or not deed.grant.chunks:
            return
        names = [path for path in deed.touched if path not in VMS][: which % 3 or None]
        told = [TargetLanding(name, to, error=error) for name in names]
        landed = self.database.run_transaction_blocking(
            partial(land.land_targets, hooks=HOOKS, chunk=deed.grant.chunks[0], landings=told, at=NOON)
        )
        expected = 0
        for name in names:
            thing = self.world.things[name]
            if thing.epoch == deed.grant.epoch and thing.row and self.leads(thing, to):
                thing.status, thing.row = to, None
                expected += 1
        assert landed == expected

    def leads(self, thing: Thing, to: str) -> bool:
        assert thing.row
        ends = (thing.row.success_status(thing.came_from), thing.row.failure_status(thing.came_from))
        return to in (*ends, "Running", "Suspended", "Terminated", "Undefined")

    @rule(
        which=st.integers(0, 50),
        result=st.sampled_from([ActionResult.SUCCEEDED, ActionResult.FAILED, ActionResult.CANCELLED]),
    )
    def finish(self, which: int, result: ActionResult, deed: Deed | None = None) -> None:
        deed = deed or self.pick(which)
        if not deed:
            return
        ending = ActionEnding(epoch=deed.grant.epoch, run=deed.grant.run, path=deed.grant.path, result=result, at=NOON)
        before = self.dump()
        outcome = self.database.run_transaction_blocking(partial(finish.finish_action, hooks=HOOKS, ending=ending))
        if deed.ended:
            assert deed.outcome in (None, outcome)
            assert self.dump() == before
        else:
            self.ended(deed, outcome)
        deed.outcome = outcome

    def ended(self, deed: Deed, outcome: Outcome) -> None:
        deed.ended = True
        assert outcome.done + outcome.failed == deed.grant.targets
        for path in [path for path in deed.touched if path not in VMS]:
            thing = self.world.things[path]
            if thing.epoch == deed.grant.epoch and thing.row:
                thing.status, thing.row = thing.row.failure_status(thing.came_from), None
        own = self.world.things[deed.grant.path]
        if own.row:
            good = outcome.result in (ActionResult.SUCCEEDED, ActionResult.PARTIAL)
            own.status = own.row.success_status(own.came_from) if good else own.row.failure_status(own.came_from)
            own.row = None

    @rule(which=st.integers(0, 50))
    def abandon(self, which: int) -> None:
        deed = self.pick(which)
        if not deed:
            return
        left = 0 if deed.ended else len(self.world.owned(deed))
        work = partial(
            recovery.abandon_run, hooks=HOOKS, owner=deed.grant.path, run=deed.claim.run, at=NOON, message="gone"
        )
        assert self.database.run_transaction_blocking(work) == left
        if not deed.ended:
            self.world.abandon(deed)

    def pick(self, which: int) -> Deed | None:
        """Recent ones more often than old ones, and all of them sometimes."""
        deeds = self.world.deeds
        return deeds[-1 - which % min(len(deeds), 1 + which)] if deeds else None

    @invariant()
    def the_inventory_is_what_the_model_says(self) -> None:
        rows = self.database.run_transaction_blocking(
            lambda connection: connection.execute(sa.select(objects)).mappings().all()
        )
        things = {path: thing for path, thing in self.world.things.items() if thing.status != NONE}
        assert {row["path"]: row["status"] for row in rows} == {path: thing.status for path, thing in things.items()}
        for row in rows:
            thing = things[row["path"]]
            assert row["epoch"] == thing.epoch >= self.epochs.get(row["path"], 0)
            self.epochs[row["path"]] = thing.epoch
            busy = thing.row is not None
            assert busy == (row["target_action"] != NONE) == (row["target_status"] != NONE)
            assert busy == (row["status"] in table_of(row["path"]).transitional_statuses)

    @invariant()
    def exactly_the_running_actions_hold_locks(self) -> None:
        rows = self.database.run_transaction_blocking(
            lambda connection: connection.execute(sa.select(locks)).mappings().all()
        )
        held = {(row["path"], row["mode"], row["owner"], row["run"]) for row in rows}
        assert held == {
            (path, mode.value, owner, deed.claim.run)
            for owner, deed in self.world.running().items()
            for path, mode in locks_needed_for([owner]).items()
        }

    @invariant()
    def nothing_is_under_way_that_nobody_owns(self) -> None:
        running = self.world.running()
        for path, thing in self.world.things.items():
            if thing.row:
                assert path in running or parent_of(path) in running


def legal_history(connection: sa.Connection) -> None:
    """Each object's history is one path through its table, and the numbers of its actions only rise."""
    at: dict[str, tuple[str, str, int, str]] = {}  # path -> status, the one before the action, epoch, action
    for line in connection.execute(sa.select(history).order_by(history.c.seq)).mappings():
        if line["effect"] == "ignored":
            continue
        table = table_of(line["path"])
        status, came_from, epoch, doing = at.get(line["path"], (NONE, NONE, 0, ""))
        source, to, action = line["source"], line["to"], line["action"]
        assert source == status, dict(line)
        assert line["epoch"] >= epoch
        if line["actor"] == "User":
            assert line["epoch"] > epoch
            verdict = table.judge(source, action, force=True)
            assert verdict.row
            assert (verdict.ruling, verdict.row.during) == (Ruling.GO, to)
            came_from, doing = source, action
        elif action == "heal":
            assert to == table.recovery_status(doing, came_from)
        else:
            stepped = table.judge_step(source, to, line["actor"]).ruling is Ruling.GO
            assert stepped or table.can_land(action, source, came_from, to)
        at[line["path"]] = (to, came_from, line["epoch"], doing)
    now = {row.path: row.status for row in connection.execute(sa.select(objects.c.path, objects.c.status))}
    assert now == {path: status for path, (status, *_) in at.items()}


def test_random_lives_keep_the_inventory_the_locks_and_the_history_true(migrated_sqlite: Path, tmp_path: Path) -> None:
    kept: list[sa.Engine] = []

    class Here(Lives):
        def __init__(self) -> None:
            super().__init__(migrated_sqlite, tmp_path, kept)

    thorough = settings(max_examples=30, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(Here, settings=thorough)
