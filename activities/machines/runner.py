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
from activities.objectpages import list_all_objects
from domain.errors import ProviderError, Refused, UnknownOutcome, format_one_line, join_first_texts
from domain.machines import orders as plan
from domain.machines.messages import HypervisorResult, MachineGrantDetails
from domain.machines.orders import OwnStage, RelatedStage
from domain.machines.ports import ABSENT, HypervisorFacts, state_expected_in_status, verbs_to_reach
from domain.machines.tables import BIN_STATUSES, S
from domain.model import AT_WRITE_TIME, Grant, Move, ObjectView, Step
from domain.paths import kind_of, name_of
from domain.ports import Inventory
from domain.statetable import NONE

CONCURRENT_OBJECTS = 20  # related objects of one action, concurrently
PAGE_SIZE = 200  # objects moved in one transaction
FAILURES_SHOWN = 3
REFUSED_BY_HYPERVISOR = "RefusedByHypervisor"


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
    work: HypervisorResult = field(default_factory=HypervisorResult)

    @property
    def kind(self) -> str:
        return self.view.kind

    @cached_property
    def terms(self) -> MachineGrantDetails:
        return MachineGrantDetails.model_validate(self.grant.details)

    async def carry_out_action(self, verbs: list[str] | None) -> HypervisorResult:
        """Runs the stages of the action's row, for the object and related objects; or just these verbs."""
        if self.view.spec.get("virtual") and self.grant.came_from == NONE:
            return HypervisorResult(to=S.MODELED if self.kind == "disk" else S.VIRTUAL, message="only modelled")
        if self.grant.came_from in (S.VIRTUAL, S.MODELED) and self.grant.then == S.DESTROYED:
            # Nothing should be there; but a creation that was cut off, or failed, may have made it all the same.
            return HypervisorResult(
                message=await self.orders.remove_object(self.view.path, self._make_order_details(self.view))
            )
        came_from = self.view.status if self.grant.action == "migrate" else self.grant.came_from
        stages = plan.action_stages(self.kind, self.grant.action, came_from)
        for stage in stages if verbs is None else (OwnStage(tuple(verbs)),):
            if isinstance(stage, OwnStage):
                await self._order_own_verbs(stage.verbs)
            else:
                await self._run_stage(stage)
        return self._make_result()

    async def _order_own_verbs(self, verbs: Sequence[str]) -> None:
        """Gives orders for the object itself, and keeps the resulting facts for its info."""
        # A hidden action does not decide the object's final status.
        goal = None if self.grant.action == "migrate" else state_expected_in_status(self.kind, self.grant.then)
        facts = await self.orders.carry_out_verbs(verbs, self.view.path, self._make_order_details(self.view), goal)
        if facts:
            self.work = self.work.model_copy(update={"info": {**self.work.info, **_info_of_facts(self.kind, facts)}})

    async def restore_objects(self) -> HypervisorResult:
        """Restores the object and the related objects that this action left under way. Returns what remains wrong."""
        moving = [
            (self.view, self.grant.came_from),
            *((view, view.previous_status) for view in await self._read_objects_left_under_way()),
        ]
        left = [note for view, came_from in moving if (note := await self._restore_object(view, came_from))]
        return HypervisorResult(message=format_one_line("; ".join(left)), info=self.work.info, to=self.work.to)

    def _make_order_details(self, view: ObjectView) -> dict[str, Any]:
        """Returns the parameters of an order: the object's spec, and the action's machine and node."""
        machine = self.terms.machine or view.info.get("machine", "")
        node = self.terms.node if self.grant.action == "migrate" else view.spec.get("node")
        return {**view.spec, "machine": machine, "node": node, "snapshot": self.terms.snapshot}

    def _make_result(self) -> HypervisorResult:
        """Returns the action's result, with the recycle bin fields of the object's info."""
        action, info = self.grant.action, dict(self.work.info)
        if action == "delete":  # `until` was written at begin
            info |= {"bin": self.grant.epoch}
        if action in ("restore", "destroy"):
            info |= {"bin": None, "until": None}
        return self.work.model_copy(update={"info": info})

    # Related objects.

    async def _run_stage(self, stage: RelatedStage) -> None:
        """Carries out one stage on the related objects, CONCURRENT_OBJECTS at a time. Fails after all were tried, if
        one failed.
        """
        failures: list[str] = []
        parties = await self._list_related_objects(stage)
        for start in range(0, len(parties), PAGE_SIZE):
            page = parties[start : start + PAGE_SIZE]
            await self._apply_moves([_move_of_related(party, party.during) for party in page])
            room = asyncio.Semaphore(CONCURRENT_OBJECTS)
            async with asyncio.TaskGroup() as side_by_side:  # a lost right cancels all of them
                going = [side_by_side.create_task(self._run_related(party, room)) for party in page]
            landed = [each.result() for each in going]
            await self._apply_moves([move for move in landed if not move.error])
            failures += [f"{move.path}: {move.error}" for move in landed if move.error]
        await self._record_paused(stage)
        if failures:
            raise UnknownOutcome(join_first_texts(failures, FAILURES_SHOWN))

    async def _list_related_objects(self, stage: RelatedStage) -> list[_RelatedObject]:
        views = await self._read_named_objects() if stage.named else await self._read_objects_below(stage.kind)
        found = [self._as_related_object(stage, view) for view in views]
        return [party for party in found if party]

    def _as_related_object(self, stage: RelatedStage, view: ObjectView) -> _RelatedObject | None:
        """Returns the object if the stage applies to it, or has begun on it in an earlier try; else None."""
        mine = view.epoch == self.grant.epoch and view.target_action == stage.action
        came_from = view.previous_status if mine else view.status
        during = plan.related_status_during(stage.kind, stage.action, came_from)
        if view.kind != stage.kind or not during or self._was_deleted_before_cloudspace(stage, view):
            return None
        about = {**view.spec, "machine": view.info.get("machine", "")}
        if self.kind == "machine":
            about |= {**self.terms.order, "machine": self.view.path}
        return _RelatedObject(view.path, view.kind, stage.action, came_from, during, about)

    def _was_deleted_before_cloudspace(self, stage: RelatedStage, view: ObjectView) -> bool:
        """Tells whether the object was deleted before its cloudspace; then it stays in the recycle bin on restore."""
        return (self.kind, stage.action) == ("cloudspace", "restore") and view.info.get("bin") != self.terms.bin

    async def _read_named_objects(self) -> list[ObjectView]:
        found = []
        for path in self.terms.named:
            try:
                found.append(await self.inventory.read_object(path))
            except Refused:  # a disk that this action creates
                found.append(_view_of_missing_object(path, self.view))
        return [_view_of_missing_object(view.path, view) if view.status == S.DESTROYED else view for view in found]

    async def _read_objects_below(self, kind: str) -> list[ObjectView]:
        return [view async for view in list_all_objects(self.inventory, kind, self.view.path)]

    async def _read_objects_left_under_way(self) -> list[ObjectView]:
        """Returns the related objects that this action left under way."""
        seen: dict[str, ObjectView] = {}
        for stage in plan.action_stages(self.kind, self.grant.action, self.grant.came_from):
            if isinstance(stage, RelatedStage):
                views = await self._read_named_objects() if stage.named else await self._read_objects_below(stage.kind)
                seen |= {view.path: view for view in views if view.target_action == stage.action}
        return [view for view in seen.values() if view.epoch == self.grant.epoch]

    async def _run_related(self, party: _RelatedObject, room: asyncio.Semaphore) -> Move:
        to = plan.related_status_after(party.kind, party.action, party.came_from)
        async with room:
            try:
                facts = await self._order_related(party, to)
            except ProviderError as error:
                return _move_of_related(party, party.came_from, error=format_one_line(error))
        news = _info_of_facts(party.kind, facts) if facts else {}
        if to in BIN_STATUSES:  # a disk deleted with its machine has no time of its own
            news |= {"bin": self.grant.epoch, "until": self.terms.until if to == S.DELETED else None}
        if party.action in ("restore", "destroy"):
            news |= {"bin": None, "until": None}
        return _move_of_related(party, to, info=news)

    async def _order_related(self, party: _RelatedObject, to: str) -> HypervisorFacts | None:
        if party.came_from in (S.VIRTUAL, S.MODELED):
            await self.orders.remove_object(party.path, party.about)
            return None
        if self.kind == "disk" and party.kind == "machine":
            return None  # an action on a disk only blocks its machine
        verbs = plan.hypervisor_verbs(party.kind, party.action, party.came_from)
        return await self.orders.carry_out_verbs(
            verbs, party.path, party.about, state_expected_in_status(party.kind, to)
        )

    async def _record_paused(self, stage: RelatedStage) -> None:
        """Stores which cloudspaces an account has paused, in all tries, to resume them with it."""
        if self.kind != "account" or stage.action not in ("pause", "resume"):
            return
        mine = [view.path for view in await self._read_objects_below(stage.kind) if view.epoch == self.grant.epoch]
        info = {**self.work.info, "paused": mine if stage.action == "pause" else None}
        self.work = self.work.model_copy(update={"info": info})

    async def _apply_moves(self, moves: list[Move]) -> None:
        if not moves:
            return
        step = Step(path=self.grant.path, epoch=self.grant.epoch, at=AT_WRITE_TIME, moves=moves)
        stepped = await self.inventory.apply_step(step)
        if not stepped.made:
            why = format_one_line("; ".join(stepped.refusals))
            raise ApplicationError(
                f"could not take others along: {why}", type=REFUSED_BY_HYPERVISOR, non_retryable=True
            )

    async def _restore_object(self, view: ObjectView, came_from: str) -> str:
        """Restores one object at the hypervisor. Returns what a person should know, or an empty string."""
        try:
            facts = await self.orders.describe_object(view.path)
            if view.path == self.view.path:
                self.work = self.work.model_copy(update={"info": _info_of_facts(view.kind, facts)})
            if self.grant.action == "migrate":
                return ""
            back = verbs_to_reach(view.kind, facts.state, state_expected_in_status(view.kind, came_from))
            if back is None and await self._has_taken_effect(view, facts.state):
                return ""
            if back is None:
                return f"{view.path} is {facts.state} at the hypervisor"
            for verb in back:
                await self.orders.order_with_retry(verb, view.path, self._make_order_details(view), "settle")
        except (ProviderError, ApplicationError) as error:
            return f"{view.path} could not be restored: {format_one_line(error, 200)}"
        return ""

    async def _has_taken_effect(self, view: ObjectView, state: str) -> bool:
        """Tells whether the action has taken effect, so that nothing is restored; then records its status."""
        itself = view.path == self.view.path
        action, came_from = (
            (self.grant.action, self.grant.came_from) if itself else (view.target_action, view.previous_status)
        )
        to = self.grant.then if itself else plan.related_status_after(view.kind, action, came_from)
        if state != state_expected_in_status(view.kind, to):
            return False
        if itself:
            self.work = self.work.model_copy(update={"to": to})
        else:
            await self._apply_moves([Move(path=view.path, to=to, action=action, info={"bin": None, "until": None})])
        return True


def _move_of_related(party: _RelatedObject, to: str, error: str = "", info: dict[str, Any] | None = None) -> Move:
    spec = {"size": party.about.get("size", 10)} if party.came_from == NONE and to == party.during else None
    return Move(path=party.path, to=to, action=party.action, error=error, info=info, spec=spec)


def _view_of_missing_object(path: str, like: ObjectView) -> ObjectView:
    blank = {"path": path, "kind": kind_of(path), "status": NONE, "phase": NONE, "spec": {}, "info": {}}
    return like.model_copy(update={**blank, "target_action": NONE, "previous_status": NONE})


def _info_of_facts(kind: str, facts: HypervisorFacts) -> dict[str, Any]:
    """Returns the info to store from the hypervisor's facts; None deletes a key that does not hold any more."""
    words = {"machine": ("node", "address"), "disk": ("machine",), "cloudspace": ("address",)}.get(kind, ())
    info = {word: (getattr(facts, word) or None) if facts.state != ABSENT else None for word in words}
    if kind == "machine":
        info["snapshots"] = {
            snapshot.name: {"memory": snapshot.memory, "disks": list(map(name_of, snapshot.disks))}
            for snapshot in facts.snapshots
        } or None
    return info
