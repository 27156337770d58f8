"""What an order to a VM needs next, by the VM's state; and the loop that reads, orders and reads again.

Clouds that answer before they have done the work share both: a repeated order reads first, so it has no second effect.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from heapq import nsmallest
from operator import attrgetter
from typing import Generic, Protocol, TypeVar

from domain.errors import NoCapacity, ProviderError, Rejected, UnknownOutcome
from domain.ports import VmAnswer, VmFacts, VmKey, VmOrder, VmState
from providers.epochs import late_order_error
from providers.listings import VmListingCache

# fmt: off


class NextOrderStep(StrEnum):
    """What to do next about an order: send it, wait, report it done, or refuse it."""

    ORDER = "order"  # send the order
    WAIT = "wait"    # in transition, or not ready for the order
    DONE = "done"    # in the goal state
    REFUSE = "refuse"


# Clouds refuse to stop a starting and to start a stopping VM, so these wait.
_NEXT_STEP_OF: dict[tuple[str, VmState], NextOrderStep] = {
    ("create",    VmState.PENDING):     NextOrderStep.WAIT,
    ("create",    VmState.RUNNING):     NextOrderStep.DONE,
    ("create",    VmState.STOPPING):    NextOrderStep.WAIT,   # created before, and stopped since: adopted as it is
    ("create",    VmState.STOPPED):     NextOrderStep.DONE,
    ("create",    VmState.TERMINATING): NextOrderStep.WAIT,
    ("create",    VmState.TERMINATED):  NextOrderStep.DONE,
    ("suspend",   VmState.PENDING):     NextOrderStep.WAIT,
    ("suspend",   VmState.RUNNING):     NextOrderStep.ORDER,
    ("suspend",   VmState.STOPPING):    NextOrderStep.WAIT,
    ("suspend",   VmState.STOPPED):     NextOrderStep.DONE,
    ("resume",    VmState.PENDING):     NextOrderStep.WAIT,
    ("resume",    VmState.RUNNING):     NextOrderStep.DONE,
    ("resume",    VmState.STOPPING):    NextOrderStep.WAIT,
    ("resume",    VmState.STOPPED):     NextOrderStep.ORDER,
    ("reboot",    VmState.PENDING):     NextOrderStep.WAIT,
    ("reboot",    VmState.RUNNING):     NextOrderStep.ORDER,
    ("terminate", VmState.PENDING):     NextOrderStep.ORDER,
    ("terminate", VmState.RUNNING):     NextOrderStep.ORDER,
    ("terminate", VmState.STOPPING):    NextOrderStep.ORDER,
    ("terminate", VmState.STOPPED):     NextOrderStep.ORDER,
    ("terminate", VmState.TERMINATING): NextOrderStep.WAIT,
    ("terminate", VmState.TERMINATED):  NextOrderStep.DONE,
}
# fmt: on
VERBS = ("create", "suspend", "resume", "reboot", "terminate")
LOOK_SHARE = 0.1  # of the time that a cloud has been at work: how late we notice that it is done
SHORTEST_PAUSE = 0.25  # between looks


def next_order_step(verb: str, state: VmState) -> NextOrderStep:
    """Returns the next step of an order. An unknown state is waited for, as it may lead to a known one."""
    return NextOrderStep.WAIT if state is VmState.UNKNOWN else _NEXT_STEP_OF.get((verb, state), NextOrderStep.REFUSE)


def why_unsupported(csp: str, verb: str, orders: int, most: int) -> str:
    """Tells why a cloud takes no such call; empty if it does."""
    if verb not in VERBS:
        return f"unknown verb {verb!r}: {csp} knows {', '.join(VERBS)}"
    return f"{orders} VMs in one call are too many: {csp} takes {most}" if orders > most else ""


class SeenVm(Protocol):
    """A VM as its cloud describes it."""

    @property
    def cloud_id(self) -> str: ...
    @property
    def state(self) -> VmState: ...
    @property
    def path(self) -> str: ...  # that it carries
    @property
    def epoch(self) -> int: ...  # of the last action that gave it an order
    @property
    def reason(self) -> str: ...  # why it is in its state, if the cloud says so
    @property
    def lacked_capacity(self) -> bool: ...  # it ended because there was no room for it

    def to_vm_facts(self, path: str = "") -> VmFacts: ...


V = TypeVar("V", bound=SeenVm)


@dataclass(slots=True)
class PendingVmOrder(Generic[V]):
    """One order under way. `ordered`: the cloud has accepted it; `answer`: it is settled."""

    order: VmOrder
    seen: V | None = None
    latest_epoch: int = 0  # of any VM that the last look has found at the path
    ordered: bool = False
    answer: VmAnswer | None = None


class PolledVms(ABC, Generic[V]):
    """Carries out orders on the VMs of one region, and describes them."""

    def __init__(self, title: str, mark: str, poll_seconds: float, wait_seconds: float) -> None:
        self._title = title  # of the cloud, in messages
        self._mark = mark  # where a VM carries its path
        self._poll_seconds = poll_seconds
        self._wait_seconds = wait_seconds
        self._listings = VmListingCache()

    async def perform_orders(self, verb: str, orders: Sequence[VmOrder]) -> list[VmAnswer]:
        """Reads, orders, and reads again until every VM is in its goal state, or the time is over."""
        tasks: list[PendingVmOrder[V]] = [PendingVmOrder(order) for order in orders]
        try:
            async for _ in self._poll_timer():
                await self._refresh_vms([task for task in tasks if task.answer is None])
                await self._issue_orders(
                    verb, [task for task in tasks if task.answer is None and self._needs_order(verb, task)]
                )
                if all(task.answer for task in tasks):
                    break
        except ProviderError as error:
            return [task.answer or error for task in tasks]
        return [task.answer or self._answer_after_timeout(task) for task in tasks]

    async def describe_vms(self, orders: Sequence[VmOrder]) -> list[VmFacts | None]:
        tasks: list[PendingVmOrder[V]] = [PendingVmOrder(order) for order in orders]
        await self._refresh_vms(tasks)
        return [task.seen.to_vm_facts(task.order.path) if task.seen else None for task in tasks]

    async def list_tagged_vms(self, prefix: str, after: VmKey) -> list[VmFacts]:
        """Returns a page of our living VMs at or below a path, or of all.

        Clouds list in no order of ours, so all of their pages are read for the first page of ours; the next ones come
        from that reading.
        """
        return await self._listings.take_page(prefix, after, partial(self._list_vms_after, prefix, after))

    async def _list_vms_after(self, prefix: str, after: VmKey, most: int) -> list[VmFacts]:
        """Returns the VMs that come next after the key, in their order. What a cloud's filter matched is compared."""
        next_ones: list[VmFacts] = []
        async for some in self._iterate_owned_vms(prefix):
            fitting = [
                facts
                for facts in (vm.to_vm_facts() for vm in some)
                if facts.state is not VmState.TERMINATED
                and facts.key > after
                and (not prefix or f"{facts.path}:".startswith(f"{prefix}:"))
            ]
            next_ones = nsmallest(most, [*next_ones, *fitting], key=attrgetter("key"))
        return next_ones

    @abstractmethod
    def _iterate_owned_vms(self, prefix: str) -> AsyncIterator[Sequence[V]]:
        """Iterates over the cloud's pages of our VMs, at or below a path if the cloud can filter by that."""

    @abstractmethod
    async def _refresh_vms(self, tasks: Sequence[PendingVmOrder[V]]) -> None:
        """Reads the VMs' state, by id or by creation token."""

    @abstractmethod
    async def _issue_orders(self, verb: str, tasks: Sequence[PendingVmOrder[V]]) -> None:
        """Sends an order for each VM. A failure becomes the answer of its VM only."""

    def _needs_order(self, verb: str, task: PendingVmOrder[V]) -> bool:
        """Tells whether the VM needs an order now. Sets the answer if its state already settles the task."""
        vm = task.seen
        if vm is None:
            return self._needs_order_unseen(verb, task)
        if vm.path != task.order.path:
            task.answer = Rejected(f"{vm.cloud_id} does not carry the {self._mark}={task.order.path}: not touched")
            return False
        if late := late_order_error(task.order.path, task.order.epoch, vm.epoch):
            task.answer = late
            return False
        match next_order_step(verb, vm.state):
            case NextOrderStep.DONE:
                task.answer = self._answer_for_state(verb, task, vm)
            case NextOrderStep.REFUSE:
                task.answer = Rejected(f"cannot {verb} {vm.cloud_id}: it is {vm.state}{vm.reason and f': {vm.reason}'}")
            case NextOrderStep.ORDER:
                return not task.ordered
        return False

    def _needs_order_unseen(self, verb: str, task: PendingVmOrder[V]) -> bool:
        order = task.order
        if verb == "create":
            return not task.ordered  # ordered, but the cloud's reads lag
        if not task.ordered:
            task.answer = Rejected(f"no such VM in {self._title}: {order.cloud_id or order.path}")
        elif verb == "terminate":  # a cloud forgets it sooner or later
            task.answer = VmFacts(order.path, order.cloud_id, VmState.TERMINATED)
        return False

    def _answer_for_state(self, verb: str, task: PendingVmOrder[V], vm: V) -> VmAnswer:
        """Returns the answer for a settled VM; one that ended during its creation is a failure."""
        if verb == "create" and task.ordered and vm.state is VmState.TERMINATED:
            why = f"{vm.cloud_id} ended while it was made: {vm.reason or f'{self._title} does not say why'}"
            return NoCapacity(why) if vm.lacked_capacity else Rejected(why)
        return vm.to_vm_facts()

    async def _poll_timer(self) -> AsyncIterator[None]:
        """Yields at once, then in growing pauses of at most `poll_seconds` until the time is over; at least twice."""
        clock = asyncio.get_running_loop().time
        looked = began = clock()
        yield
        while True:
            # A cloud whose answers are slow is not kept busy with looks alone.
            pause = max(SHORTEST_PAUSE, LOOK_SHARE * (clock() - began), clock() - looked)
            await asyncio.sleep(min(pause, self._poll_seconds))
            looked = clock()
            yield
            if clock() > began + self._wait_seconds:
                return

    def _answer_after_timeout(self, task: PendingVmOrder[V]) -> VmAnswer:
        name, waited = task.order.cloud_id or task.order.path, f"after {self._wait_seconds:g} s"
        if task.seen is None:
            return UnknownOutcome(f"{self._title} accepted the order for {name}, but does not list it {waited}")
        return UnknownOutcome(f"{name} is still {task.seen.state} {waited}")


def is_living(vm: SeenVm) -> bool:
    """Sorts living VMs last, so that they win over terminated ones."""
    return vm.state not in (VmState.TERMINATED, VmState.TERMINATING)
