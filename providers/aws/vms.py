"""VMs on EC2: read in bulk, ordered in bulk, created one by one.

Each creation is a call of its own, because EC2's client token and tags are per call: a repeated order then finds the VM
of the first one. Every order reads first, so a repeated order has no second effect, except a reboot, which leaves no
trace.

Each VM is tagged with the epoch of the last action that gave it an order; an order of an earlier action is refused. EC2
cannot compare and order in one call, so an earlier order on the wire at that moment is not stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

from domain.errors import ProviderError
from domain.ports import VmOrder
from domain.registry import tenant_of
from providers.aws import instances, tags
from providers.aws.connection import AwsOptions
from providers.aws.ec2 import Ec2Client
from providers.aws.errors import TOKEN_REUSED_CODES, Ec2CallRejected
from providers.aws.instances import Ec2Instance
from providers.aws.network import Ec2TenantResources
from providers.aws.ratelimit import RateLimiter
from providers.epochs import late_order_error
from providers.listings import split_sorted
from providers.regioncloud import LaunchNetwork
from providers.steps import PendingVmOrder, PolledVms, is_living

VALUES_PER_FILTER = 200  # per filter in EC2


class Ec2VmOperator(PolledVms[Ec2Instance]):
    """Carries out orders on the VMs of one region, and describes them."""

    def __init__(self, ec2: Ec2Client, network: Ec2TenantResources, options: AwsOptions) -> None:
        super().__init__("EC2", f"tag {tags.PATH_TAG}", options.poll_seconds, options.wait_seconds)
        self._ec2 = ec2
        self._network = network
        self._options = options
        self._pace = RateLimiter(options.launches_per_second)

    def _iterate_owned_vms(self, prefix: str) -> AsyncIterator[list[Ec2Instance]]:
        """EC2's wildcard may match more, and it lists terminated VMs for about an hour."""
        pattern = tags.escape_filter_value(prefix)
        below = [pattern, f"{pattern}:*"] if prefix else ["*"]
        return self._iterate_instances({tags.PATH_TAG: below, tags.OWNER_TAG: self._options.owner})

    async def _issue_orders(self, verb: str, tasks: Sequence[PendingVmOrder[Ec2Instance]]) -> None:
        if verb == "create":
            await self._refuse_outdated(tasks)
            await asyncio.gather(*(self._launch_vm(task) for task in tasks if task.answer is None))
        elif tasks:
            await self._apply_verb_to_all(verb, tasks)

    async def _refuse_outdated(self, tasks: Sequence[PendingVmOrder[Ec2Instance]]) -> None:
        """Refuses to create a VM at a path where a later action has given an order, even if its VM is gone."""
        epochs: dict[str, int] = {}
        for page in split_sorted(VALUES_PER_FILTER, {tags.escape_filter_value(task.order.path) for task in tasks}):
            for vm in await self._find_instances({tags.PATH_TAG: page, tags.OWNER_TAG: self._options.owner}):
                epochs[vm.path] = max(epochs.get(vm.path, 0), vm.epoch)
        for task in tasks:
            task.answer = late_order_error(task.order.path, task.order.epoch, epochs.get(task.order.path, 0))

    async def _tag_epochs(self, tasks: Sequence[PendingVmOrder[Ec2Instance]]) -> None:
        """Tags VMs with the epochs of their orders, one call per epoch."""
        signed: dict[int, list[str]] = {}
        for task in tasks:
            if task.seen and task.seen.epoch < task.order.epoch:
                signed.setdefault(task.order.epoch, []).append(task.seen.cloud_id)
        for epoch, ids in signed.items():
            marks = tags.tag_pairs({tags.EPOCH_TAG: str(epoch)})
            await self._ec2.call_change_operation("create_tags", Resources=ids, Tags=marks)

    async def _apply_verb_to_all(self, verb: str, tasks: Sequence[PendingVmOrder[Ec2Instance]]) -> None:
        """Sends one call for all VMs. EC2 refuses it as a whole, so after a refusal sends one call per VM."""
        ids = [task.seen.cloud_id for task in tasks if task.seen]
        try:
            await self._tag_epochs(tasks)
            await self._ec2.call_change_operation(instances.OPERATION_OF_VERB[verb], InstanceIds=ids)
        except Ec2CallRejected as error:
            if len(tasks) > 1:
                for task in tasks:
                    await self._apply_verb_to_all(verb, [task])
                return
            tasks[0].answer = error
        except ProviderError as error:
            for task in tasks:
                task.answer = error
        else:
            for task in tasks:
                task.ordered = True
                if verb == "reboot" and task.seen:  # a rebooting VM stays `running`
                    task.answer = task.seen.to_vm_facts()

    async def _launch_vm(self, task: PendingVmOrder[Ec2Instance]) -> None:
        try:
            home = await self._network.find_launch_network(
                tenant_of(task.order.path), task.order.spec.get("network") or {}
            )
            wanted = self._launch_arguments(task.order, home)
            await self._pace.wait_for_turn()
            made = await self._ec2.call_until_visible("run_instances", self._options.lag_seconds, **wanted)
        except Ec2CallRejected as error:
            if error.code not in TOKEN_REUSED_CODES:
                task.answer = error
            task.ordered = True  # created before: found by its token
        except ProviderError as error:
            task.answer = error
        else:
            task.ordered = True
            task.order = replace(task.order, cloud_id=made["Instances"][0]["InstanceId"])

    def _launch_arguments(self, order: VmOrder, home: LaunchNetwork) -> dict[str, Any]:
        """Returns the arguments that create a VM. They are the same for a repeated order, as EC2 compares them."""
        options, spec = self._options, order.spec
        size, image = str(spec.get("specId", "")), str(spec.get("imageId", ""))
        owned = tags.vm_tags(options.owner, order.path, order.token, spec.get("label") or {})
        return {
            "ImageId": options.images.get(image, image),
            "InstanceType": options.specs.get(size, size),
            "MinCount": 1,
            "MaxCount": 1,
            "ClientToken": sha256(f"{options.owner} {order.token}".encode()).hexdigest(),
            "TagSpecifications": [
                *tags.tag_specifications(owned | {tags.EPOCH_TAG: str(order.epoch)}, "instance"),
                *tags.tag_specifications(owned, "volume"),
            ],
            "MetadataOptions": {"HttpTokens": "required"},
            "SubnetId": home.network,
            "SecurityGroupIds": list(home.groups),
            **({"KeyName": home.key} if home.key else {}),
        }

    async def _refresh_vms(self, tasks: Sequence[PendingVmOrder[Ec2Instance]]) -> None:
        """Reads the VMs' state, by id or by creation token."""
        by_id = {task.order.cloud_id for task in tasks if task.order.cloud_id.startswith("i-")}
        by_token = {task.order.token for task in tasks if not task.order.cloud_id and task.order.token}
        found: dict[str, Ec2Instance] = {}
        for page in split_sorted(VALUES_PER_FILTER, by_id):
            found |= {instance.cloud_id: instance for instance in await self._find_instances({"instance-id": page})}
        for page in split_sorted(VALUES_PER_FILTER, by_token):
            seen = await self._find_instances({tags.TOKEN_TAG: page, tags.OWNER_TAG: self._options.owner})
            found |= {instance.token: instance for instance in sorted(seen, key=is_living)}
        for task in tasks:
            task.seen = found.get(task.order.cloud_id or task.order.token)

    async def _find_instances(self, wanted: dict[str, str | Sequence[str]]) -> list[Ec2Instance]:
        return [instance async for page in self._iterate_instances(wanted) for instance in page]

    async def _iterate_instances(self, wanted: dict[str, str | Sequence[str]]) -> AsyncIterator[list[Ec2Instance]]:
        """Yields EC2's pages of the instances that match."""
        public = self._options.public_addresses
        async for groups in self._ec2.iterate_pages(
            "describe_instances", "Reservations", Filters=tags.ec2_filters(wanted)
        ):
            yield [instances.parse_instance(each, public) for group in groups for each in group["Instances"]]
