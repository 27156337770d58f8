"""Carries out one action of the machines family: orders for its object and for related objects.

If it fails or is cut off, `restore` leads the hypervisor back to the earlier state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from temporalio.exceptions import ApplicationError

from activities.machines.orders import HypervisorCalls
from activities.pages import list_all
from domain.errors import ProviderError, Refused, UnknownOutcome, join_first, one_line
from domain.machines import orders as plan
from domain.machines.messages import MachineTerms, ObjectResult
from domain.machines.orders import Others, Own
from domain.machines.ports import ABSENT, HypervisorFacts, expected, way_back
from domain.machines.tables import IN_BIN, S
from domain.model import WHEN_WRITTEN, Grant, Move, ObjectView, Step
from domain.paths import kind_of
from domain.ports import Inventory
from domain.statetable import NONE

AT_ONCE = 20  # related objects of one action, concurrently
PAGE = 200  # objects moved in one transaction
FAILURES_TOLD = 3
REFUSED_OUTSIDE = "RefusedByHypervisor"


@dataclass(frozen=True)
class _RelatedObject:
    """A related object, such as a machine's disk, that an action moves through the object's own table."""

    path: str
    kind: str
    action: str
    came_from: str
    during: str
    about: dict[str, Any]


@dataclass
class ObjectRunner:
    """Carries out one action of the machines family."""

    inventory: Inventory
    orders: HypervisorCalls
    grant: Grant
    view: ObjectView
    work: ObjectResult = field(default_factory=ObjectResult)

    @property
    def kind(self) -> str:
        return self.view.kind

    @cached_property
    def terms(self) -> MachineTerms:
        return MachineTerms.model_validate(self.grant.details)

    async def carry_out(self, verbs: list[str] | None) -> ObjectResult:
        """Runs the stages of the action's row, for the object and related objects; or just these verbs."""
        if self.view.spec.get("virtual") and self.grant.came_from == NONE:
            return ObjectResult(to=S.MODELED if self.kind == "disk" else S.VIRTUAL, message="only modelled")
        if self.grant.came_from in (S.VIRTUAL, S.MODELED) and self.grant.then == S.DESTROYED:
            # Nothing should be there; but a creation that was cut off, or failed, may have made it all the same.
            return ObjectResult(message=await self.orders.remove(self.view.path, self._about(self.view)))
        came_from = self.view.status if self.grant.action == "migrate" else self.grant.came_from
        stages = plan.stages(self.kind, self.grant.action, came_from)
        for stage in stages if verbs is None else (Own(tuple(verbs)),):
            if isinstance(stage, Own):
                await self._order_self(stage.verbs)
            else:
                await self._run_stage(stage)
        return self._conclude()

    async def _order_self(self, verbs: Sequence[str]) -> None:
        """Gives orders for the object itself, and keeps the resulting facts for its info."""
        # A hidden action does not decide the object's final status.
        goal = None if self.grant.action == "migrate" else expected(self.kind, self.grant.then)
        facts = await self.orders.carry_out(verbs, self.view.path, self._about(self.view), goal)
        if facts:
            self.work = self.work.model_copy(update={"info": {**self.work.info, **_info_from(self.kind, facts)}})

    async def restore(self) -> ObjectResult:
        """Restores the object and the related objects that this action left under way. Returns what remains wrong."""
        moving = [(self.view, self.grant.came_from), *((view, view.previous_status) for view in await self._moving())]
        left = [note for view, came_from in moving if (note := await self._restore_object(view, came_from))]
        return ObjectResult(message=one_line("; ".join(left)), info=self.work.info, to=self.work.to)

    def _about(self, view: ObjectView) -> dict[str, Any]:
        """Returns the parameters of an order: the object's spec, and the action's machine and node."""
        machine = self.terms.machine or view.info.get("machine", "")
        node = self.terms.node if self.grant.action == "migrate" else view.spec.get("node")
        return {**view.spec, "machine": machine, "node": node}

    def _conclude(self) -> ObjectResult:
        """Returns the action's result, with the recycle bin fields of the object's info."""
        action, info = self.grant.action, dict(self.work.info)
        if action == "delete":  # `until` was written at begin
            info |= {"bin": self.grant.epoch}
        if action in ("restore", "destroy"):
            info |= {"bin": None, "until": None}
        return self.work.model_copy(update={"info": info})

    # Related objects.

    async def _run_stage(self, stage: Others) -> None:
        """Runs an action on related objects, AT_ONCE at a time. Fails if one of them fails."""
        failures: list[str] = []
        parties = await self._related(stage)
        for start in range(0, len(parties), PAGE):
            page = parties[start : start + PAGE]
            await self._move([_move(party, party.during) for party in page])
            room = asyncio.Semaphore(AT_ONCE)
            async with asyncio.TaskGroup() as side_by_side:  # a lost right cancels all of them
                going = [side_by_side.create_task(self._run_related(party, room)) for party in page]
            landed = [each.result() for each in going]
            await self._move([move for move in landed if not move.error])
            failures += [f"{move.path}: {move.error}" for move in landed if move.error]
        await self._record_paused(stage)
        if failures:
            raise UnknownOutcome(join_first(failures, FAILURES_TOLD))

    async def _related(self, stage: Others) -> list[_RelatedObject]:
        views = await self._named() if stage.named else await self._below(stage.kind)
        found = [self._related_object(stage, view) for view in views]
        return [party for party in found if party]

    def _related_object(self, stage: Others, view: ObjectView) -> _RelatedObject | None:
        """Returns the object if the stage applies to it, or has begun on it in an earlier try; else None."""
        mine = view.epoch == self.grant.epoch and view.target_action == stage.action
        came_from = view.previous_status if mine else view.status
        during = plan.related_during(stage.kind, stage.action, came_from)
        if view.kind != stage.kind or not during or self._deleted_before(stage, view):
            return None
        about = {**view.spec, "machine": view.info.get("machine", "")}
        if self.kind == "machine":
            about |= {**self.terms.order, "machine": self.view.path}
        return _RelatedObject(view.path, view.kind, stage.action, came_from, during, about)

    def _deleted_before(self, stage: Others, view: ObjectView) -> bool:
        """Tells whether the object was deleted before its cloudspace; then it stays in the recycle bin on restore."""
        return (self.kind, stage.action) == ("cloudspace", "restore") and view.info.get("bin") != self.terms.bin

    async def _named(self) -> list[ObjectView]:
        found = []
        for path in self.terms.named:
            try:
                found.append(await self.inventory.get(path))
            except Refused:  # a disk that this action creates
                found.append(_never_created(path, self.view))
        return [_never_created(view.path, view) if view.status == S.DESTROYED else view for view in found]

    async def _below(self, kind: str) -> list[ObjectView]:
        return [view async for view in list_all(self.inventory, kind, self.view.path)]

    async def _moving(self) -> list[ObjectView]:
        """Returns the related objects that this action left under way."""
        seen: dict[str, ObjectView] = {}
        for stage in plan.stages(self.kind, self.grant.action, self.grant.came_from):
            if isinstance(stage, Others):
                views = await self._named() if stage.named else await self._below(stage.kind)
                seen |= {view.path: view for view in views if view.target_action == stage.action}
        return [view for view in seen.values() if view.epoch == self.grant.epoch]

    async def _run_related(self, party: _RelatedObject, room: asyncio.Semaphore) -> Move:
        to = plan.related_ends_in(party.kind, party.action, party.came_from)
        async with room:
            try:
                facts = await self._order_related(party, to)
            except ProviderError as error:
                return _move(party, party.came_from, error=one_line(error))
        news = _info_from(party.kind, facts) if facts else {}
        if to in IN_BIN:  # a disk deleted with its machine has no time of its own
            news |= {"bin": self.grant.epoch, "until": self.terms.until if to == S.DELETED else None}
        if party.action in ("restore", "destroy"):
            news |= {"bin": None, "until": None}
        return _move(party, to, info=news)

    async def _order_related(self, party: _RelatedObject, to: str) -> HypervisorFacts | None:
        if party.came_from in (S.VIRTUAL, S.MODELED):
            await self.orders.remove(party.path, party.about)
            return None
        if self.kind == "disk" and party.kind == "machine":
            return None  # an action on a disk only blocks its machine
        verbs = plan.verbs(party.kind, party.action, party.came_from)
        return await self.orders.carry_out(verbs, party.path, party.about, expected(party.kind, to))

    async def _record_paused(self, stage: Others) -> None:
        """Stores which cloudspaces an account has paused, in all tries, to resume them with it."""
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
            why = one_line("; ".join(stepped.refusals))
            raise ApplicationError(f"could not take others along: {why}", type=REFUSED_OUTSIDE, non_retryable=True)

    async def _restore_object(self, view: ObjectView, came_from: str) -> str:
        """Restores one object at the hypervisor. Returns what a person should know, or an empty string."""
        try:
            found = await self.orders.describe(view.path)
            if view.path == self.view.path:
                self.work = self.work.model_copy(update={"info": _info_from(view.kind, found)})
            if self.grant.action == "migrate":
                return ""
            back = way_back(view.kind, found.state, expected(view.kind, came_from))
            if back is None and await self._is_done(view, found.state):
                return ""
            if back is None:
                return f"{view.path} is {found.state} at the hypervisor"
            for verb in back:
                await self.orders.order(verb, view.path, self._about(view), "settle")
        except (ProviderError, ApplicationError) as error:
            return f"{view.path} could not be restored: {one_line(error, 200)}"
        return ""

    async def _is_done(self, view: ObjectView, state: str) -> bool:
        """Tells whether the action has taken effect, so that nothing is restored; then records its status."""
        itself = view.path == self.view.path
        action, came_from = (
            (self.grant.action, self.grant.came_from) if itself else (view.target_action, view.previous_status)
        )
        to = self.grant.then if itself else plan.related_ends_in(view.kind, action, came_from)
        if state != expected(view.kind, to):
            return False
        if itself:
            self.work = self.work.model_copy(update={"to": to})
        else:
            await self._move([Move(path=view.path, to=to, action=action, info={"bin": None, "until": None})])
        return True


def _move(party: _RelatedObject, to: str, error: str = "", info: dict[str, Any] | None = None) -> Move:
    spec = {"size": party.about.get("size", 10)} if party.came_from == NONE and to == party.during else None
    return Move(path=party.path, to=to, action=party.action, error=error, info=info, spec=spec)


def _never_created(path: str, like: ObjectView) -> ObjectView:
    blank = {"path": path, "kind": kind_of(path), "status": NONE, "phase": NONE, "spec": {}, "info": {}}
    return like.model_copy(update={**blank, "target_action": NONE, "previous_status": NONE})


def _info_from(kind: str, facts: HypervisorFacts) -> dict[str, Any]:
    """Returns the info to store from the hypervisor's facts; None deletes a key that does not hold any more."""
    word = {"machine": "node", "disk": "machine"}.get(kind)
    return {word: getattr(facts, word) or None} if word and facts.state != ABSENT else {word: None} if word else {}
