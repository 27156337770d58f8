"""The work on one action: orders for the object itself, and for those that go along.

If it fails or is cut off, `bring_back` leads the hypervisor back to what the objects were before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from temporalio.exceptions import ApplicationError

from activities.machines.orders import Orders
from activities.pages import every
from domain.errors import ProviderError, Refused, Rejected, UnknownOutcome, brief, several
from domain.machine import NONE
from domain.machines import orders as plan
from domain.machines.model import Work
from domain.machines.orders import Others, Own
from domain.machines.port import ABSENT, Facts, expected, way_back
from domain.machines.tables import IN_BIN, S
from domain.model import WHEN_WRITTEN, Grant, Move, ObjectView, Step
from domain.paths import kind_of
from domain.ports import Inventory

AT_ONCE = 20  # objects of one action that are worked on side by side
PAGE = 200  # that are moved in one transaction
FAILURES_TOLD = 3
REFUSED_OUTSIDE = "RefusedByHypervisor"


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
class Crew:
    """The work on one action."""

    inventory: Inventory
    orders: Orders
    grant: Grant
    view: ObjectView
    work: Work = field(default_factory=Work)

    @property
    def kind(self) -> str:
        return self.view.kind

    async def carry_out(self, verbs: list[str] | None) -> Work:
        """What the table's row says: orders for the object itself, and others that go along; or just these verbs."""
        if self.view.spec.get("virtual") and self.grant.came_from == NONE:
            return Work(to=S.MODELED if self.kind == "disk" else S.VIRTUAL, message="only modelled")
        if self.grant.then == NONE:
            return await self._discard()
        if self.grant.came_from in (S.VIRTUAL, S.MODELED) and self.grant.then == S.DESTROYED:
            return await self._discard()
        came_from = self.view.status if self.grant.action == "migrate" else self.grant.came_from
        stages = plan.stages(self.kind, self.grant.action, came_from)
        for stage in stages if verbs is None else (Own(tuple(verbs)),):
            if isinstance(stage, Own):
                await self._do(stage.verbs)
            else:
                await self._take_along(stage)
        return self._conclude()

    async def _discard(self) -> Work:
        """Nothing should be there. What is there may have been made by a creation that was cut off, or failed."""
        found = await self.orders.describe(self.view.path)
        about = {**self._about(self.view), "machine": found.machine}
        if (await self.orders.clear_away(self.view.path, about)).state != ABSENT:
            raise Rejected(f"{self.view.path} is {found.state} at the hypervisor, and no order leads away from there")
        if found.state == ABSENT:
            return Work(message="nothing was left at the hypervisor")
        return Work(message=f"was {found.state} at the hypervisor, and was removed")

    async def _do(self, verbs: Sequence[str]) -> None:
        """Orders for the object itself. What the last one tells of it is kept with it."""
        # Hidden work has no say in where the object should be at the end.
        goal = None if self.grant.action == "migrate" else expected(self.kind, self.grant.then)
        facts = await self.orders.carry_out(verbs, self.view.path, self._about(self.view), goal)
        if facts:
            self.work = self.work.model_copy(update={"info": {**self.work.info, **_known(self.kind, facts)}})

    async def bring_back(self) -> Work:
        """The object itself, and everything that this action has taken along and not brought to rest."""
        moving = [(self.view, self.grant.came_from), *((view, view.previous_status) for view in await self._moving())]
        left = [note for view, came_from in moving if (note := await self._return(view, came_from))]
        return Work(message=brief("; ".join(left)), info=self.work.info, to=self.work.to)

    def _about(self, view: ObjectView) -> dict[str, Any]:
        """What an order needs to know: what the object is made of, and what the action is about."""
        details = self.grant.details
        machine = details.get("machine") or view.info.get("machine", "")
        node = details.get("node") if self.grant.action == "migrate" else view.spec.get("node")
        return {**view.spec, "machine": machine, "node": node}

    def _conclude(self) -> Work:
        """What the action leaves with the object itself."""
        action, info = self.grant.action, dict(self.work.info)
        if action == "delete":  # its time was written when it began
            info |= {"bin": self.grant.epoch}
        if action in ("restore", "destroy"):
            info |= {"bin": None, "until": None}
        return self.work.model_copy(update={"info": info})

    # Others.

    async def _take_along(self, stage: Others) -> None:
        """Take others through an action of their own, side by side. If some fail, the whole action does."""
        failures: list[str] = []
        parties = await self._parties(stage)
        for start in range(0, len(parties), PAGE):
            page = parties[start : start + PAGE]
            await self._move([_move(party, party.during) for party in page])
            room = asyncio.Semaphore(AT_ONCE)
            async with asyncio.TaskGroup() as side_by_side:  # if our right is lost, all of them end
                going = [side_by_side.create_task(self._bring_through(party, room)) for party in page]
            landed = [each.result() for each in going]
            await self._move([move for move in landed if not move.error])
            failures += [f"{move.path}: {move.error}" for move in landed if move.error]
        await self._note(stage)
        if failures:
            raise UnknownOutcome(several(failures, FAILURES_TOLD))

    async def _parties(self, stage: Others) -> list[_Party]:
        views = await self._named() if stage.named else await self._below(stage.kind)
        found = [self._party(stage, view) for view in views]
        return [party for party in found if party]

    def _party(self, stage: Others, view: ObjectView) -> _Party | None:
        """Whoever may go along, or is on the way already, as a second try finds it. Others are left alone."""
        mine = view.epoch == self.grant.epoch and view.target_action == stage.action
        came_from = view.previous_status if mine else view.status
        during = plan.takes_along(stage.kind, stage.action, came_from)
        if view.kind != stage.kind or not during or self._went_alone(stage, view):
            return None
        about = {**view.spec, "machine": view.info.get("machine", "")}
        if self.kind == "machine":
            about |= {**self.grant.details.get("order", {}), "machine": self.view.path}
        return _Party(view.path, view.kind, stage.action, came_from, during, about)

    def _went_alone(self, stage: Others, view: ObjectView) -> bool:
        """Into the recycle bin, before its cloudspace did: then it stays there when that comes back."""
        return (self.kind, stage.action) == ("cloudspace", "restore") and view.info.get("bin") != self.grant.details[
            "bin"
        ]

    async def _named(self) -> list[ObjectView]:
        found = []
        for path in self.grant.details.get("named", []):
            try:
                found.append(await self.inventory.get(path))
            except Refused:  # a disk that this very action makes
                found.append(_unborn(path, self.view))
        return [_unborn(view.path, view) if view.status == S.DESTROYED else view for view in found]

    async def _below(self, kind: str) -> list[ObjectView]:
        return [view async for view in every(self.inventory, kind, self.view.path)]

    async def _moving(self) -> list[ObjectView]:
        """What this action has taken along and not brought to rest."""
        seen: dict[str, ObjectView] = {}
        for stage in plan.stages(self.kind, self.grant.action, self.grant.came_from):
            if isinstance(stage, Others):
                views = await self._named() if stage.named else await self._below(stage.kind)
                seen |= {view.path: view for view in views if view.target_action == stage.action}
        return [view for view in seen.values() if view.epoch == self.grant.epoch]

    async def _bring_through(self, party: _Party, room: asyncio.Semaphore) -> Move:
        to = plan.lands(party.kind, party.action, party.came_from)
        async with room:
            try:
                facts = await self._work_on(party, to)
            except ProviderError as error:
                return _move(party, party.came_from, error=brief(error))
        news = _known(party.kind, facts) if facts else {}
        if to in IN_BIN:  # a disk that went with its machine comes back or goes for good with it: it has no own time
            news |= {"bin": self.grant.epoch, "until": self.grant.details["until"] if to == S.DELETED else None}
        if party.action in ("restore", "destroy"):
            news |= {"bin": None, "until": None}
        return _move(party, to, info=news)

    async def _work_on(self, party: _Party, to: str) -> Facts | None:
        if party.came_from in (S.VIRTUAL, S.MODELED):
            return await self.orders.clear_away(party.path, party.about)
        if self.kind == "disk" and party.kind == "machine":
            return None  # a machine whose disk is worked on only stands still
        verbs = plan.verbs(party.kind, party.action, party.came_from)
        return await self.orders.carry_out(verbs, party.path, party.about, expected(party.kind, to))

    async def _note(self, stage: Others) -> None:
        """Which cloudspaces an account has paused, to be resumed with it. Those of an earlier try count as well."""
        if self.kind != "account" or stage.action not in ("pause", "resume"):
            return
        mine = [view.path for view in await self._below(stage.kind) if view.epoch == self.grant.epoch]
        info = {**self.work.info, "paused": mine if stage.action == "pause" else None}
        self.work = self.work.model_copy(update={"info": info})

    async def _move(self, moves: list[Move]) -> None:
        if not moves:
            return
        step = Step(path=self.grant.path, epoch=self.grant.epoch, at=WHEN_WRITTEN, moves=moves)
        stepped = await self.inventory.advance(step)
        if not stepped.made:
            why = brief("; ".join(stepped.refusals))
            raise ApplicationError(f"could not take others along: {why}", type=REFUSED_OUTSIDE, non_retryable=True)

    async def _return(self, view: ObjectView, came_from: str) -> str:
        """Bring one object back at the hypervisor. Returns what a person should know of it, if anything."""
        try:
            found = await self.orders.describe(view.path)
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
                await self.orders.give(verb, view.path, self._about(view), "settle")
        except (ProviderError, ApplicationError) as error:
            return f"{view.path} could not be brought back: {brief(error, 200)}"
        return ""

    async def _is_done(self, view: ObjectView, state: str) -> bool:
        """There is no way back, because it is done: then that is what it is called."""
        itself = view.path == self.view.path
        action, came_from = (
            (self.grant.action, self.grant.came_from) if itself else (view.target_action, view.previous_status)
        )
        to = self.grant.then if itself else plan.lands(view.kind, action, came_from)
        if state != expected(view.kind, to):
            return False
        if itself:
            self.work = self.work.model_copy(update={"to": to})
        else:
            await self._move([Move(path=view.path, to=to, action=action, info={"bin": None, "until": None})])
        return True


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
