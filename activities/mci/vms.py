"""Calls to clouds for VMs: chunk by chunk, each VM until the cloud has answered for it.

A call ends as done, failed or unknown. Unknown never counts as failed: the same order with the same token is repeated,
and a token has one effect. If a VM cannot be brought to its goal, the cloud is asked for its state, which becomes its
status, together with the error.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator, Mapping, MutableMapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from itertools import islice
from typing import Any

from temporalio import activity

from activities.fence import Fence, OrderFence, seconds_since_boot
from activities.heartbeat import send_heartbeats
from activities.landingbuffer import LandingBuffer
from activities.permits import PermitPool
from activities.retry import ProviderRetry, jittered_pause, monotonic_now
from domain import wire
from domain.errors import NoCapacity, ProviderError, Superseded, Throttled, Unavailable, UnknownOutcome, format_one_line
from domain.mci.messages import MciStore
from domain.mci.tables import CLOUD_VERB_OF_ACTION, REMOVING_ACTIONS, STATUS_OF_CLOUD_STATE, WANTED_STATUS, VmStatus
from domain.model import Chunk, Target, TargetCounts, TargetLanding
from domain.ports import Cloud, Inventory, VmAnswer, VmFacts, VmOrder
from domain.registry import tenant_of
from domain.statetable import NONE

FULL_REGIONS_REMEMBERED = 1_000  # remembered places without capacity; an action dropped from here finds out again


@dataclass(eq=False)
class VmActivities:
    """Carries out actions on VMs. One instance per worker process, so that all activities share its permits."""

    inventory: Inventory
    store: MciStore
    clouds: Mapping[str, Cloud]
    permits: PermitPool
    fence: Fence
    patience: ProviderRetry
    # action and place -> why there is no more room
    full: OrderedDict[tuple[int, str], str] = field(default_factory=OrderedDict)

    @activity.defn
    async def operate_vms(self, chunk: Chunk) -> TargetCounts:
        """Carries the chunk's action out on each VM that has not landed yet."""
        async with self._open_chunk_runner(chunk) as runner:
            if runner.verb == "create":
                runner.network.update(await self.store.read_shared_resources(tenant_of(chunk.first), chunk.placement))
            asked = seconds_since_boot()
            todo = iter(await self.inventory.list_targets(chunk))
            runner.right.accept_read_as_proof(asked)  # targets with our epoch prove that the action is open
            async with asyncio.TaskGroup() as lanes:
                for _ in range(runner.lane_count()):
                    lanes.create_task(runner.run_lane(todo))
        return runner.buffer.tally

    @activity.defn
    async def settle_vms(self, chunk: Chunk) -> TargetCounts:
        """Lands each open VM of a cancelled or failed action with its state in the cloud. Gives no orders."""
        async with self._open_chunk_runner(chunk) as runner:
            await runner.settle_all(await self.inventory.list_targets(chunk), "stopped before it was done")
        return runner.buffer.tally

    @activity.defn
    async def forget_vms(self, chunk: Chunk) -> TargetCounts:
        """Removes the records of VMs without asking the cloud."""
        async with send_heartbeats(), LandingBuffer(self.inventory, chunk) as logbook:
            for target in await self.inventory.list_targets(chunk):
                logbook.add_landing(TargetLanding(target.path, NONE))
        return logbook.tally

    @asynccontextmanager
    async def _open_chunk_runner(self, chunk: Chunk) -> AsyncIterator[_ChunkRunner]:
        csp, region = wire.split_placement(chunk.placement)
        async with (
            self.fence.right_to_order(chunk.first, chunk.epoch) as right,
            self.permits.take_region_permit(csp, region),
            LandingBuffer(self.inventory, chunk) as logbook,
        ):
            while len(self.full) > FULL_REGIONS_REMEMBERED:
                self.full.popitem(last=False)
            yield _ChunkRunner(
                self.clouds[csp], self.permits, right, self.patience, chunk, csp, region, logbook, self.full
            )


@dataclass(frozen=True)
class _ChunkRunner:
    """Works through one chunk in concurrent lanes that take VMs from one list."""

    cloud: Cloud
    permits: PermitPool
    right: OrderFence
    patience: ProviderRetry
    chunk: Chunk
    csp: str
    region: str
    buffer: LandingBuffer
    full: MutableMapping[tuple[int, str], str]
    adopted_paths: set[str] = field(default_factory=set)
    network: dict[str, str] = field(default_factory=dict)  # what the tenant shares in the region, for new VMs

    @cached_property
    def removes_records(self) -> bool:
        """Whether the action deletes the records of its VMs."""
        return self.chunk.action in REMOVING_ACTIONS

    @cached_property
    def verb(self) -> str:
        """The verb that the cloud is ordered to carry out."""
        return CLOUD_VERB_OF_ACTION.get(self.chunk.action, self.chunk.action)

    @cached_property
    def wanted_status(self) -> VmStatus:
        """The status that each VM should reach."""
        return WANTED_STATUS[self.chunk.action]

    def lane_count(self) -> int:
        """Returns the number of lanes: at most the region's cap, and no more than there are batches."""
        return min(self.permits.vm_cap(self.csp, self.region), -(-self.chunk.count // self._batch_size()))

    def _batch_size(self) -> int:
        """Returns the VMs per call: at most the cloud's bulk size and the region's cap."""
        return min(self.cloud.orders_per_call, self.permits.vm_cap(self.csp, self.region))

    async def run_lane(self, todo: Iterator[Target]) -> None:
        """Takes batches of VMs from the shared list, and orders each, until the list is empty."""
        while batch := list(islice(todo, self._batch_size())):
            if self.verb != "create":
                batch = await self._find_created_vms(batch)
            elif why := self.full.get(self._region_key()):
                # Each is looked up without an order: earlier attempts may have created it.
                await self.settle_all([*batch, *todo], f"not tried, there is no more room: {why}")
                return
            await self._order_until_done(batch)

    def _region_key(self) -> tuple[int, str]:
        return self.chunk.epoch, self.chunk.placement

    async def _find_created_vms(self, batch: list[Target]) -> list[Target]:
        """Looks up VMs without a cloud id by their creation token; lands those that the cloud does not know."""
        unknown = [target for target in batch if "cloud_id" not in target.info]
        if not unknown:
            return batch
        found = dict(zip((target.path for target in unknown), await self._describe_vms(unknown), strict=True))
        missing = [target for target in unknown if not isinstance(found[target.path], VmFacts)]
        await self.settle_all(missing, "the cloud knows no such VM")
        self.adopted_paths.update(path for path, facts in found.items() if isinstance(facts, VmFacts))
        gone = {target.path for target in missing}
        return [
            target._replace(info=_info_with_facts(target, found.get(target.path)))
            for target in batch
            if target.path not in gone
        ]

    async def _order_until_done(self, batch: list[Target]) -> None:
        """Gives the order; repeats it for throttled, unavailable or unknown answers until the deadline."""
        deadline, pauses = monotonic_now() + self.patience.total_seconds, self.patience.pauses()
        pause = next(pauses)
        while batch:
            answers = await self._order_batch(batch)
            again, lost = self._classify_answers(batch, answers)
            if again and monotonic_now() + pause > deadline:
                again, lost = [], lost + again
            if lost:
                await self._settle_targets(
                    lost, {target.path: _error_of_answer(answers[target.path]) for target in lost}
                )
            if again:
                await asyncio.sleep(jittered_pause(pause, [answers[target.path] for target in again]))
                pause = next(pauses)
            batch = again

    def _classify_answers(
        self, batch: list[Target], answers: Mapping[str, VmAnswer]
    ) -> tuple[list[Target], list[Target]]:
        """Records VMs that are done. Returns those to retry, and those whose state must be asked for."""
        again: list[Target] = []
        lost: list[Target] = []
        for target in batch:
            match answers[target.path]:
                case VmFacts() as facts if (
                    STATUS_OF_CLOUD_STATE.get(facts.state) == self.wanted_status and not self.removes_records
                ):
                    self._land_target(target, self.wanted_status, facts)
                case Throttled() | Unavailable() | UnknownOutcome():
                    again.append(target)
                case NoCapacity() as answer:
                    self.full[self._region_key()] = format_one_line(answer, 200)
                    lost.append(target)
                case _:
                    lost.append(target)
        return again, lost

    async def _order_batch(self, batch: list[Target]) -> dict[str, VmAnswer]:
        orders = [self._make_vm_order(target) for target in batch]
        answers: list[VmAnswer] = []
        while rest := orders[len(answers) :]:
            async with self.permits.take_vm_slots(self.csp, self.region, len(rest), self.right) as most:
                answers += await self._perform_with_permit(rest[:most])
        for answer in answers:
            if isinstance(answer, Superseded):
                raise answer
        return {order.path: answer for order, answer in zip(orders, answers, strict=True)}

    async def _perform_with_permit(self, orders: list[VmOrder]) -> Sequence[VmAnswer]:
        try:
            async with asyncio.timeout(self.patience.call_seconds):
                return await self.cloud.perform_orders(self.verb, self.region, orders)
        except TimeoutError:
            return [UnknownOutcome(f"no answer within {self.patience.call_seconds:g} s") for _ in orders]

    def _make_vm_order(self, target: Target) -> VmOrder:
        if self.verb != "create":
            return _make_order_of_target(target, self.chunk.action, self.chunk.epoch)
        order = _make_order_of_target(target, "create", self.chunk.epoch)
        return replace(order, spec={**order.spec, "network": self.network}) if self.network else order

    async def settle_all(self, lost: Sequence[Target], error: str) -> None:
        """Settles VMs that missed their goal for the same reason."""
        await self._settle_targets(lost, dict.fromkeys((target.path for target in lost), error))

    async def _settle_targets(self, lost: Sequence[Target], errors: Mapping[str, str]) -> None:
        """Asks the cloud for the state of VMs that missed their goal, and lands them; Failed if it is unclear."""
        if not lost:
            return
        for target, facts in zip(lost, await self._describe_vms(lost), strict=True):
            seen = self._status_from_facts(facts)
            done = seen == self.wanted_status and self.verb != "reboot"  # Running does not prove a reboot
            error = "" if done else errors[target.path]
            self._land_target(target, seen, facts, error)

    def _land_target(self, target: Target, status: VmStatus, facts: object, error: str = "") -> None:
        """Adds a landing; with info only where it has changed, so that most landings share one statement."""
        if self.removes_records and status == self.wanted_status and not error:
            self.buffer.add_landing(TargetLanding(target.path, NONE))
            return
        info = _info_with_facts(target, facts)
        if error:
            info = info | {"failure": {"phase": target.status, "at": datetime.now(UTC).isoformat(), "error": error}}
        elif "failure" in info:
            info = {key: value for key, value in info.items() if key != "failure"}
        news = info is not target.info or target.path in self.adopted_paths
        self.buffer.add_landing(TargetLanding(target.path, status, info if news else None, error))

    def _status_from_facts(self, facts: VmFacts | ProviderError | None) -> VmStatus:
        if isinstance(facts, VmFacts):
            return STATUS_OF_CLOUD_STATE.get(facts.state, VmStatus.FAILED)
        if isinstance(facts, ProviderError) or self.verb == "create":
            return VmStatus.FAILED
        return VmStatus.TERMINATED if self.verb == "terminate" else VmStatus.UNDEFINED

    async def _describe_vms(self, lost: Sequence[Target]) -> Sequence[VmFacts | ProviderError | None]:
        """Reads the state of VMs, by cloud id or else by creation token."""
        orders = [_make_order_of_target(target, "create", 0) for target in lost]
        try:
            return await self.patience.call_with_retry(
                partial(self.cloud.describe_vms, self.region, orders),
                room=lambda: self.permits.take_vm_slots(self.csp, self.region),
                again=(Throttled, Unavailable),
            )
        except ProviderError as error:
            return [UnknownOutcome(format_one_line(error)) for _ in orders]


def order_token(path: str, generation: int, action: str, epoch: int) -> str:
    """Returns an order's idempotency token. A create repeated by retries or later actions makes one VM; any other order
    has
    its effect once per action."""
    what = f"{path}#{generation}" if action == "create" else f"{path}#{generation}:{action}#{epoch}"
    return hashlib.sha256(what.encode()).hexdigest()[:32]


def _make_order_of_target(target: Target, action: str, epoch: int) -> VmOrder:
    token = order_token(target.path, target.info["generation"], action, epoch)
    return VmOrder(target.path, token, target.info.get("cloud_id", ""), target.spec, epoch)


def _info_with_facts(target: Target, facts: object) -> dict[str, Any]:
    """Returns a target's info with the cloud's facts in it: the same object if it has them."""
    info = target.info
    if not isinstance(facts, VmFacts) or (facts.cloud_id, facts.address) == (info.get("cloud_id"), info.get("address")):
        return info
    return info | {"cloud_id": facts.cloud_id, "address": facts.address}


def _error_of_answer(answer: VmAnswer) -> str:
    if isinstance(answer, VmFacts):
        return f"the cloud called it {answer.state}, and that is not so"
    return format_one_line(answer)
