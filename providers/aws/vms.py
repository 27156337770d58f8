"""VMs on EC2: read in bulk, ordered in bulk, created one by one.

Each creation is a call of its own, because EC2's client token and tags are per call: a repeated order then finds the VM
of the first one. Every order reads first, so a repeated order has no second effect, except a reboot, which leaves no
trace.

Each VM is tagged with the epoch of the last action that gave it an order; an order of an earlier action is refused. EC2
cannot compare and order in one call, so an earlier order on the wire at that moment is not stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import islice
from typing import Any

from domain.errors import NoCapacity, ProviderError, Rejected, Superseded, UnknownOutcome
from domain.ports import VmAnswer, VmFacts, VmOrder, VmState
from providers.aws import instances, tags
from providers.aws.connection import AwsOptions
from providers.aws.ec2 import Ec2
from providers.aws.errors import NO_CAPACITY, USED_TOKENS, Declined
from providers.aws.instances import Instance, NextStep
from providers.aws.network import Home, Network
from providers.aws.ratelimit import RateLimiter

VALUES = 200  # per filter in EC2


@dataclass(slots=True)
class VmTask:
    """One order under way. `told`: EC2 has accepted it; `answer`: it is settled."""

    order: VmOrder
    seen: Instance | None = None
    told: bool = False
    answer: VmAnswer | None = None


class Ec2Vms:
    """Carries out orders on the VMs of one region, and describes them."""

    def __init__(self, ec2: Ec2, network: Network, options: AwsOptions) -> None:
        self._ec2 = ec2
        self._network = network
        self._options = options
        self._pace = RateLimiter(options.launches_per_second)

    async def perform(self, verb: str, orders: Sequence[VmOrder]) -> list[VmAnswer]:
        """Reads, orders, and reads again until every VM is in its goal state, or the time is over."""
        tasks = [VmTask(order) for order in orders]
        try:
            async for _ in self._rounds():
                await self._refresh([task for task in tasks if task.answer is None])
                await self._issue(verb, [task for task in tasks if task.answer is None and self._is_due(verb, task)])
                if all(task.answer for task in tasks):
                    break
        except ProviderError as error:
            return [task.answer or error for task in tasks]
        return [task.answer or self._late(task) for task in tasks]

    async def describe(self, orders: Sequence[VmOrder]) -> list[VmFacts | None]:
        tasks = [VmTask(order) for order in orders]
        await self._refresh(tasks)
        return [task.seen.facts(task.order.path) if task.seen else None for task in tasks]

    async def tagged(self, prefix: str) -> list[VmFacts]:
        """Returns our VMs at or below a path, or all. EC2's wildcard may match more, so paths are compared again."""
        pattern = tags.literally(prefix)
        below = [pattern, f"{pattern}:*"] if prefix else ["*"]
        found = await self._find({tags.PATH: below, tags.OWNER: self._options.owner})
        return [each.facts() for each in found if not prefix or f"{each.path}:".startswith(f"{prefix}:")]

    def _is_due(self, verb: str, task: VmTask) -> bool:
        """Tells whether the VM needs an order now. Sets the answer if its state already settles the task."""
        vm = task.seen
        if vm is None:
            return self._is_due_unseen(verb, task)
        if vm.path != task.order.path:
            task.answer = Rejected(f"{vm.cloud_id} does not carry the tag {tags.PATH}={task.order.path}: not touched")
            return False
        if late := _outdated(task.order, vm.epoch):
            task.answer = late
            return False
        match instances.step(verb, vm.state):
            case NextStep.DONE:
                task.answer = _ended(verb, task, vm)
            case NextStep.REFUSE:
                task.answer = Rejected(f"cannot {verb} {vm.cloud_id}: it is {vm.state}")
            case NextStep.ORDER:
                return not task.told
        return False

    def _is_due_unseen(self, verb: str, task: VmTask) -> bool:
        order = task.order
        if verb == "create":
            return not task.told  # ordered, but EC2's reads lag
        if not task.told:
            task.answer = Rejected(f"no such VM in EC2: {order.cloud_id or order.path}")
        elif verb == "terminate":  # EC2 lists a terminated VM for about an hour
            task.answer = VmFacts(order.path, order.cloud_id, VmState.TERMINATED)
        return False

    async def _issue(self, verb: str, tasks: Sequence[VmTask]) -> None:
        if verb == "create":
            await self._refuse_outdated(tasks)
            await asyncio.gather(*(self._launch(task) for task in tasks if task.answer is None))
        elif tasks:
            await self._command(verb, tasks)

    async def _refuse_outdated(self, tasks: Sequence[VmTask]) -> None:
        """Refuses to create a VM at a path where a later action has given an order, even if its VM is gone."""
        epochs: dict[str, int] = {}
        for page in _pages({tags.literally(task.order.path) for task in tasks}):
            for vm in await self._find({tags.PATH: page, tags.OWNER: self._options.owner}):
                epochs[vm.path] = max(epochs.get(vm.path, 0), vm.epoch)
        for task in tasks:
            task.answer = _outdated(task.order, epochs.get(task.order.path, 0))

    async def _tag_epochs(self, tasks: Sequence[VmTask]) -> None:
        """Tags VMs with the epochs of their orders, one call per epoch."""
        signed: dict[int, list[str]] = {}
        for task in tasks:
            if task.seen and task.seen.epoch < task.order.epoch:
                signed.setdefault(task.order.epoch, []).append(task.seen.cloud_id)
        for epoch, ids in signed.items():
            await self._ec2.change("create_tags", Resources=ids, Tags=tags.pairs(tags.of_epoch(epoch)))

    async def _command(self, verb: str, tasks: Sequence[VmTask]) -> None:
        """Sends one call for all VMs. EC2 refuses it as a whole, so after a refusal sends one call per VM."""
        ids = [task.seen.cloud_id for task in tasks if task.seen]
        try:
            await self._tag_epochs(tasks)
            await self._ec2.change(instances.OPERATIONS[verb], InstanceIds=ids)
        except Declined as error:
            if len(tasks) > 1:
                for task in tasks:
                    await self._command(verb, [task])
                return
            tasks[0].answer = error
        except ProviderError as error:
            for task in tasks:
                task.answer = error
        else:
            for task in tasks:
                task.told = True
                if verb == "reboot" and task.seen:  # a rebooting VM stays `running`
                    task.answer = task.seen.facts()

    async def _launch(self, task: VmTask) -> None:
        try:
            home = await self._network.home(task.order.spec.get("network") or {})
            wanted = self._wanted(task.order, home)
            await self._pace.acquire()
            made = await self._ec2.change_eventually("run_instances", self._options.lag_seconds, **wanted)
        except Declined as error:
            if error.code not in USED_TOKENS:
                task.answer = error
            task.told = True  # created before: found by its token
        except ProviderError as error:
            task.answer = error
        else:
            task.told = True
            task.order = replace(task.order, cloud_id=made["Instances"][0]["InstanceId"])

    def _wanted(self, order: VmOrder, home: Home) -> dict[str, Any]:
        """Returns the arguments that create a VM. They are the same for a repeated order, as EC2 compares them."""
        options, spec = self._options, order.spec
        size, image = str(spec.get("specId", "")), str(spec.get("imageId", ""))
        owned = tags.of_vm(options.owner, order.path, order.token, spec.get("label") or {})
        return {
            "ImageId": options.images.get(image, image),
            "InstanceType": options.specs.get(size, size),
            "MinCount": 1,
            "MaxCount": 1,
            "ClientToken": sha256(f"{options.owner} {order.token}".encode()).hexdigest(),
            "TagSpecifications": [
                *tags.specification(owned | tags.of_epoch(order.epoch), "instance"),
                *tags.specification(owned, "volume"),
            ],
            "MetadataOptions": {"HttpTokens": "required"},
            **home.arguments(),
        }

    async def _refresh(self, tasks: Sequence[VmTask]) -> None:
        """Reads the VMs' state, by id or by creation token."""
        by_id = {task.order.cloud_id for task in tasks if task.order.cloud_id.startswith("i-")}
        by_token = {task.order.token for task in tasks if not task.order.cloud_id and task.order.token}
        found: dict[str, Instance] = {}
        for page in _pages(by_id):
            found |= {each.cloud_id: each for each in await self._find({"instance-id": page})}
        for page in _pages(by_token):
            seen = await self._find({tags.TOKEN: page, tags.OWNER: self._options.owner})
            found |= {each.token: each for each in sorted(seen, key=_by_life)}
        for task in tasks:
            task.seen = found.get(task.order.cloud_id or task.order.token)

    async def _find(self, wanted: dict[str, str | Sequence[str]]) -> list[Instance]:
        groups = await self._ec2.every("describe_instances", "Reservations", Filters=tags.where(wanted))
        public = self._options.public_addresses
        return [instances.read(each, public) for group in groups for each in group["Instances"]]

    async def _rounds(self) -> AsyncIterator[None]:
        """Yields at once, then every `poll_seconds` until the time is over; at least twice."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._options.wait_seconds
        yield
        while True:
            await asyncio.sleep(self._options.poll_seconds)
            yield
            if loop.time() > deadline:
                return

    def _late(self, task: VmTask) -> VmAnswer:
        name, waited = task.order.cloud_id or task.order.path, f"after {self._options.wait_seconds:g} s"
        if task.seen is None:
            return UnknownOutcome(f"EC2 accepted the order for {name}, but does not list it {waited}")
        return UnknownOutcome(f"{name} is still {task.seen.state} {waited}")


def _ended(verb: str, task: VmTask, vm: Instance) -> VmAnswer:
    """Returns the answer for a settled VM; one that EC2 terminated during its creation is a failure."""
    if verb == "create" and task.told and vm.state is VmState.TERMINATED:
        why = f"{vm.cloud_id} ended while it was made: {vm.reason or 'EC2 does not say why'}"
        return NoCapacity(why) if vm.reason.partition(":")[0] in NO_CAPACITY else Rejected(why)
    return vm.facts()


def _outdated(order: VmOrder, seen: int) -> Superseded | None:
    late = f"the order of action {order.epoch} for {order.path} comes too late: action {seen} has ordered since"
    return Superseded(late, final=True) if order.epoch < seen else None


def _by_life(vm: Instance) -> bool:
    """Sorts living VMs last, so that they win over terminated ones."""
    return vm.state not in (VmState.TERMINATED, VmState.TERMINATING)


def _pages(values: set[str]) -> Iterator[list[str]]:
    rest = iter(sorted(values))
    while page := list(islice(rest, VALUES)):
        yield page
