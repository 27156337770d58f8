"""Orders to the hypervisor for one action: for the object itself, and for those that go along.

Every order carries a token of the action, so that one that is given again has no second effect. Whatever was not
answered is asked again until patience ends; then the action fails, and `settle_object` brings the hypervisor back to
what the object was before.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.pulse import pulse
from domain import machines
from domain.errors import ProviderError, Refused, Rejected, Throttled, Unavailable, UnknownOutcome, brief
from domain.machine import NONE
from domain.machines import orders
from domain.machines.model import Residents, Task, Work
from domain.machines.orders import Others, Own
from domain.machines.port import ABSENT, MOVES, Facts, Hypervisor, Order, expected, way_back
from domain.machines.tables import IN_BIN, TABLES, S
from domain.model import Grant, Move, ObjectView, Query, Step
from domain.paths import kind_of, name_of
from domain.ports import Inventory

AT_ONCE = 20  # objects of one action that are worked on side by side
PAGE = 200
FAILURES_TOLD = 3
REFUSED_OUTSIDE = "RefusedByHypervisor"


@dataclass(frozen=True)
class Patience:
    """How long to bear with the hypervisor: one order, all tries of it, and the pauses between them."""

    call: float = 300.0
    total: float = 900.0
    first_pause: float = 0.1
    longest_pause: float = 10.0


class MachineActivities:
    """Everything that is done to this family's objects outside."""

    def __init__(self, inventory: Inventory, hypervisor: Hypervisor, patience: Patience | None = None) -> None:
        self._inventory = inventory
        self._hypervisor = hypervisor
        self._patience = patience or Patience()

    @activity.defn(name=machines.OPERATE_OBJECT)
    async def operate_object(self, task: Task) -> Work:
        """Carry an action out. Fails for good when the hypervisor refuses, or does not answer for too long."""
        async with pulse():
            crew = await self._crew(task.grant)
            try:
                return await crew.carry_out(task.verbs)
            except ProviderError as error:
                raise ApplicationError(brief(error), type=REFUSED_OUTSIDE, non_retryable=True) from error

    @activity.defn(name=machines.SETTLE_OBJECT)
    async def settle_object(self, task: Task) -> Work:
        """The action failed or was cut off: bring the hypervisor back to what its objects were before."""
        async with pulse():
            return await (await self._crew(task.grant)).bring_back()

    @activity.defn(name=machines.MACHINES_ON)
    async def machines_on(self, query: Query) -> Residents:
        """The machines on a node, as the hypervisor knows them."""
        found = await self._hypervisor.machines_on(name_of(query.path))
        return Residents(machines={facts.path: facts.state in ("running", "paused") for facts in found})

    async def inspect(self, view: ObjectView) -> str:
        """What the hypervisor says that an object is; with what it should be, if it is something else."""
        found = (await self._hypervisor.describe(view.path)).state
        if view.status not in TABLES[view.kind].stable:
            return found
        wanted = expected(view.kind, view.status)
        return found if found == wanted else f"{found}, not {wanted}"

    async def _crew(self, grant: Grant) -> _Crew:
        view = await self._inventory.get(grant.path)
        return _Crew(self._inventory, self._hypervisor, self._patience, grant, view)


@dataclass(frozen=True)
class _Party:
    """One object that goes along, on its way through its own table."""

    path: str
    kind: str
    action: str
    came_from: str
    during: str
    about: dict[str, Any]


@dataclass
class _Crew:
    """The work on one action."""

    inventory: Inventory
    hypervisor: Hypervisor
    patience: Patience
    grant: Grant
    view: ObjectView
    work: Work = field(default_factory=Work)

    @property
    def kind(self) -> str:
        return self.view.kind

    async def carry_out(self, verbs: list[str] | None) -> Work:
        if self.view.spec.get("virtual") and self.grant.came_from == NONE:
            return Work(to=S.MODELED if self.kind == "disk" else S.VIRTUAL, message="only modelled")
        if self.grant.then == NONE:
            return await self._discard()
        stages = orders.stages(self.kind, self.grant.action, self._came_from())
        for stage in stages if verbs is None else (Own(tuple(verbs)),):
            if isinstance(stage, Own):
                await self._do(stage.verbs, self.view.path, self._about(self.view), self._goal())
            else:
                await self._take_along(stage)
        return self._conclude()

    async def _discard(self) -> Work:
        """Nothing should be there. What is there may have been made by an action that was cut off."""
        found = await self._describe(self.view.path)
        if found.state == ABSENT:
            return Work(message="nothing was left at the hypervisor")
        about = {**self._about(self.view), "machine": found.machine}
        if (await self._clear_away(self.view.path, about)).state != ABSENT:
            raise Rejected(f"{self.view.path} is {found.state} at the hypervisor, and no order leads away from there")
        return Work(message=f"was {found.state} at the hypervisor, and was removed")

    def _goal(self) -> str | None:
        """Where the object should be at the end. Hidden work has no say in that."""
        return None if self.grant.action == "migrate" else expected(self.kind, self.grant.then)

    def _came_from(self) -> str:
        return self.view.status if self.grant.action == "migrate" else self.grant.came_from

    async def bring_back(self) -> Work:
        """The object itself, and everything that this action has taken along and not brought to rest."""
        moving = [(self.view, self.grant.came_from), *((view, view.previous_status) for view in await self._moving())]
        left = [note for view, came_from in moving if (note := await self._return(view, came_from))]
        return Work(message=brief("; ".join(left)), info=self.work.info, to=self.work.to)

    # The object itself.

    async def _do(self, verbs: Sequence[str], path: str, about: dict[str, Any], goal: str | None) -> Facts | None:
        """Orders one after the other. What the last one tells of the object is kept with it."""
        facts = None
        for verb in verbs:
            try:
                facts = await self._order(verb, path, about)
            except Rejected as error:
                if goal is None:
                    raise
                facts = await self._from_elsewhere(verb, path, about, goal, error)
                break
        if facts and path == self.view.path:
            self.work = self.work.model_copy(update={"info": {**self.work.info, **_known(self.kind, facts)}})
        return facts

    async def _from_elsewhere(self, verb: str, path: str, about: dict[str, Any], goal: str, error: Rejected) -> Facts:
        """The object is not what we took it for, as after an action that was cut off: lead it on from where it is."""
        facts, kind = await self._describe(path), kind_of(path)
        way = way_back(kind, facts.state, goal)
        as_expected = facts.state in MOVES[kind].get(verb, {})
        elsewhere = verb == "attach" and facts.machine != about.get("machine")
        if as_expected or elsewhere or way is None:
            raise error
        return await self._lead(facts, way, about)

    async def _lead(self, facts: Facts, way: Sequence[str], about: dict[str, Any]) -> Facts:
        for step in way:
            facts = await self._order(step, facts.path, about, "drift")
        return facts

    async def _clear_away(self, path: str, about: dict[str, Any]) -> Facts:
        """What is only modelled has no orders; but a creation that was cut off may have made it all the same."""
        facts = await self._describe(path)
        return await self._lead(facts, way_back(kind_of(path), facts.state, ABSENT) or (), about)

    def _about(self, view: ObjectView) -> dict[str, Any]:
        """What an order needs to know: what the object is made of, and what the action is about."""
        details = self.grant.details
        machine = details.get("machine") or view.info.get("machine", "")
        node = details.get("node") if self.grant.action == "migrate" else view.spec.get("node")
        return {**view.spec, "machine": machine, "node": node}

    def _conclude(self) -> Work:
        """What the action leaves with the object itself."""
        action, info = self.grant.action, dict(self.work.info)
        binned, unbinned = list(self.work.binned), list(self.work.unbinned)
        if action == "delete":
            until = datetime.now(UTC) + timedelta(seconds=float(self.grant.details.get("retention", 0)))
            info |= {"bin": self.grant.epoch, "until": until.isoformat(timespec="seconds")}
            binned.append(self.view.path)
        if action in ("restore", "destroy"):
            info |= {"bin": None, "until": None}
            unbinned += [] if self.grant.details.get("from_bin") else [self.view.path]
        return self.work.model_copy(update={"info": info, "binned": binned, "unbinned": unbinned})

    # Others.

    async def _take_along(self, stage: Others) -> None:
        """Take others through an action of their own, side by side. If some fail, the whole action does."""
        failures: list[str] = []
        parties = await self._parties(stage)
        for start in range(0, len(parties), PAGE):
            page = parties[start : start + PAGE]
            await self._move([_move(party, party.during) for party in page])
            room = asyncio.Semaphore(AT_ONCE)
            landed = await asyncio.gather(*(self._bring_through(party, room) for party in page))
            await self._move([move for move in landed if not move.error])
            failures += [f"{move.path}: {move.error}" for move in landed if move.error]
        self._note(stage, parties)
        if failures:
            more = f"; and {len(failures) - FAILURES_TOLD} more" if len(failures) > FAILURES_TOLD else ""
            raise UnknownOutcome("; ".join(failures[:FAILURES_TOLD]) + more)

    async def _parties(self, stage: Others) -> list[_Party]:
        views = await self._named() if stage.named else await self._below(stage.kind)
        found = [self._party(stage, view) for view in views]
        return [party for party in found if party]

    def _party(self, stage: Others, view: ObjectView) -> _Party | None:
        """Whoever may go along, or is on the way already, as a second try finds it. Others are left alone."""
        mine = view.epoch == self.grant.epoch and view.target_action == stage.action
        came_from = view.previous_status if mine else view.status
        during = orders.takes_along(stage.kind, stage.action, came_from)
        if view.kind != stage.kind or not during:
            return None
        about = {**view.spec, "machine": view.info.get("machine", "")}
        if self.kind == "machine":
            about |= {**self.grant.details.get("order", {}), "machine": self.view.path}
        return _Party(view.path, view.kind, stage.action, came_from, during, about)

    async def _named(self) -> list[ObjectView]:
        found = []
        for path in self.grant.details.get("named", []):
            try:
                found.append(await self.inventory.get(path))
            except Refused:  # a disk that this very action makes
                found.append(_unborn(path, self.view))
        return [_unborn(view.path, view) if view.status == S.DESTROYED else view for view in found]

    async def _below(self, kind: str) -> list[ObjectView]:
        found: list[ObjectView] = []
        while True:
            after = found[-1].path if found else ""
            page = await self.inventory.list_objects(kind, self.view.path, after, PAGE)
            found += page
            if len(page) < PAGE:
                return found

    async def _moving(self) -> list[ObjectView]:
        """What this action has taken along and not brought to rest."""
        seen: dict[str, ObjectView] = {}
        for stage in orders.stages(self.kind, self.grant.action, self.grant.came_from):
            if isinstance(stage, Others):
                views = await self._named() if stage.named else await self._below(stage.kind)
                seen |= {view.path: view for view in views if view.target_action == stage.action}
        return [view for view in seen.values() if view.epoch == self.grant.epoch]

    async def _bring_through(self, party: _Party, room: asyncio.Semaphore) -> Move:
        verbs = orders.verbs(party.kind, party.action, party.came_from)
        async with room:
            try:
                goal = expected(party.kind, orders.lands(party.kind, party.action, party.came_from))
                if party.came_from in (S.VIRTUAL, S.MODELED):
                    facts: Facts | None = await self._clear_away(party.path, party.about)
                else:
                    facts = await self._do(verbs, party.path, party.about, goal) if self._works_on(party) else None
            except ProviderError as error:
                return _move(party, party.came_from, error=brief(error))
        to = orders.lands(party.kind, party.action, party.came_from)
        news = _known(party.kind, facts) if facts else {}
        if to in IN_BIN:
            news |= {"bin": self.grant.epoch}
        if party.action in ("restore", "destroy"):
            news |= {"bin": None, "until": None}
        return _move(party, to, info=news)

    def _works_on(self, party: _Party) -> bool:
        """A machine whose disk is worked on only stands still."""
        return not (self.kind == "disk" and party.kind == "machine")

    def _note(self, stage: Others, parties: list[_Party]) -> None:
        """What the workflow or the object must know of those that went along."""
        paths = [party.path for party in parties]
        known = self.work
        if self.kind == "account" and stage.action in ("pause", "resume"):
            info = {**known.info, "paused": paths if stage.action == "pause" else None}
            known = known.model_copy(update={"info": info})
        if stage.action == "delete":  # a disk that went with its machine comes back or goes for good with it
            alone = [party.path for party in parties if party.came_from != S.ASSIGNED]
            known = known.model_copy(update={"binned": [*known.binned, *alone]})
        if stage.action in ("restore", "destroy"):
            known = known.model_copy(update={"unbinned": [*known.unbinned, *paths]})
        self.work = known

    async def _move(self, moves: list[Move]) -> None:
        if not moves:
            return
        step = Step(path=self.grant.path, epoch=self.grant.epoch, at=datetime.now(UTC), moves=moves)
        stepped = await self.inventory.advance(step)
        if not stepped.made:
            why = brief("; ".join(stepped.refusals))
            raise ApplicationError(f"could not take others along: {why}", type=REFUSED_OUTSIDE, non_retryable=True)

    async def _return(self, view: ObjectView, came_from: str) -> str:
        """Bring one object back at the hypervisor. Returns what a person should know of it, if anything."""
        try:
            found = await self._describe(view.path)
            if view.path == self.view.path:
                self.work = self.work.model_copy(update={"info": _known(view.kind, found)})
            if self.grant.action == "migrate":
                return ""
            back = way_back(view.kind, found.state, expected(view.kind, came_from))
            if back is None and await self._is_done(view, found.state):
                return ""
            if back is None:
                return f"{view.path} is {found.state} at the hypervisor"
            for verb in back:
                await self._order(verb, view.path, self._about(view), "settle")
        except (ProviderError, ApplicationError) as error:
            return f"{view.path} could not be brought back: {brief(error, 200)}"
        return ""

    async def _is_done(self, view: ObjectView, state: str) -> bool:
        """There is no way back, because it is done: then that is what it is called."""
        itself = view.path == self.view.path
        action, came_from = (
            (self.grant.action, self.grant.came_from) if itself else (view.target_action, view.previous_status)
        )
        to = self.grant.then if itself else orders.lands(view.kind, action, came_from)
        if state != expected(view.kind, to):
            return False
        if itself:
            self.work = self.work.model_copy(update={"to": to})
        else:
            await self._move([Move(path=view.path, to=to, action=action, info={"bin": None, "until": None})])
        return True

    # Orders.

    async def _describe(self, path: str) -> Facts:
        try:
            async with asyncio.timeout(self.patience.call):
                return await self.hypervisor.describe(path)
        except TimeoutError as error:
            raise UnknownOutcome(f"no answer within {self.patience.call:g} s") from error

    async def _order(self, verb: str, path: str, about: dict[str, Any], purpose: str = "") -> Facts:
        """One order, given again until it is answered or patience ends."""
        token = ":".join((path, str(self.grant.epoch), purpose or self.grant.action, verb))
        order = Order(path, kind_of(path), token, about)
        deadline, pause = _now() + self.patience.total, self.patience.first_pause
        while True:
            try:
                async with asyncio.timeout(self.patience.call):
                    return await self.hypervisor.perform(verb, order)
            except TimeoutError:
                trouble: ProviderError = UnknownOutcome(f"no answer within {self.patience.call:g} s")
            except (Throttled, Unavailable, UnknownOutcome) as error:
                trouble = error
            if _now() + pause > deadline:
                raise trouble
            asked = trouble.retry_after or 0.0 if isinstance(trouble, Throttled) else 0.0
            await asyncio.sleep(max(asked, random.uniform(pause / 2, pause)))  # noqa: S311  spreads load
            pause = min(pause * 2, self.patience.longest_pause)


def _move(party: _Party, to: str, error: str = "", info: dict[str, Any] | None = None) -> Move:
    spec = {"size": party.about.get("size", 10)} if party.came_from == NONE and to == party.during else None
    return Move(path=party.path, to=to, action=party.action, error=error, info=info, spec=spec)


def _unborn(path: str, like: ObjectView) -> ObjectView:
    blank = {"path": path, "kind": kind_of(path), "status": NONE, "phase": NONE, "spec": {}, "info": {}}
    return like.model_copy(update={**blank, "target_action": NONE, "previous_status": NONE})


def _known(kind: str, facts: Facts) -> dict[str, Any]:
    """What is worth keeping of the hypervisor's answer; None takes away what is not so any more."""
    word = {"machine": "node", "disk": "machine"}.get(kind)
    return {word: getattr(facts, word) or None} if word and facts.state != ABSENT else {word: None} if word else {}


def _now() -> float:
    return asyncio.get_running_loop().time()
