"""VMs on Nova: read in bulk, ordered one by one, as Nova takes one server per call.

Nova has no client token. So a creation looks first for a server with its token, deleted ones too; waits for one whose
creation was not answered; and afterwards removes all but the oldest, if a call was carried out twice. Every order
reads first, so a repeated order has no second effect, except a reboot, which leaves no trace.

A server's description has the epoch of the last action that gave it an order; an order of an earlier action is refused.
Nova cannot compare and order in one call, so an earlier order on the wire at that moment is not stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from operator import attrgetter
from typing import Any

import structlog

from domain.errors import NoCapacity, ProviderError, Rejected, UnknownOutcome
from domain.ports import VmAnswer, VmFacts, VmOrder, VmState
from domain.registry import tenant_of
from providers.epochs import late_order_error
from providers.listings import split_sorted
from providers.openstack import servers
from providers.openstack.api import OpenStackApi
from providers.openstack.connection import OpenStackOptions
from providers.openstack.errors import Busy, CallRejected
from providers.openstack.network import NovaTenantResources
from providers.openstack.servers import OWNER_KEY, Server
from providers.steps import PendingVmOrder, PolledVms

HASHES_PER_FILTER = 50  # in one list call: its address must not become too long
TOKENS_REMEMBERED = 10_000
LONG_AGO = "1970-01-01T00:00:00Z"  # with it, Nova lists deleted servers too

Task = PendingVmOrder[Server]


class NovaVms(PolledVms[Server]):
    """Carries out orders on the servers of one region, and describes them."""

    def __init__(self, api: OpenStackApi, network: NovaTenantResources, options: OpenStackOptions, place: str) -> None:
        super().__init__("Nova", f"metadata {servers.PATH_KEY}", options.poll_seconds, options.wait_seconds)
        self._api = api
        self._network = network
        self._options = options
        self._place = place
        self._flavors: dict[str, str] = {}  # name -> id
        self._made: dict[str, asyncio.Future[str]] = {}  # token -> id of its server, or its creation under way
        self._unanswered: dict[str, float] = {}  # token -> until when its server may still appear
        self._conflicts: dict[str, str] = {}  # id -> the last 409

    async def perform_orders(self, verb: str, orders: Sequence[VmOrder]) -> list[VmAnswer]:
        answers = await super().perform_orders(verb, orders)
        if verb == "create":
            await self._remove_twins([answer for answer in answers if isinstance(answer, VmFacts)])
        return answers

    async def _iterate_owned_vms(self, prefix: str) -> AsyncIterator[list[Server]]:
        """Nova cannot filter by path."""
        wanted = {"name": servers.place_hash(self._place)}
        async for page in self._api.iterate_pages("compute", "/servers/detail", "servers", **wanted):
            yield [servers.parse_server(each) for each in page if self._is_ours(each)]

    async def _refresh_vms(self, tasks: Sequence[Task]) -> None:
        """Reads the servers' state: living ones, then deleted ones, then those that somebody has renamed."""
        for deleted in (False, True):
            left = [task for task in tasks if not deleted or task.seen is None]
            found = await self._list_by_path([task.order for task in left], deleted)
            for task in left:
                there = found.get(task.order.path, [])
                task.seen = _pick(there, task.order)
                task.latest_epoch = max((server.epoch for server in there), default=0)
        renamed = [task for task in tasks if task.seen is None and task.order.cloud_id]
        for task, server in zip(renamed, await _gather(self._read_server, renamed), strict=True):
            task.seen = server

    async def _list_by_path(self, orders: Sequence[VmOrder], deleted: bool) -> dict[str, list[Server]]:
        """Lists the servers of the orders' paths in bulk; with `deleted`, those that Nova still remembers too."""
        found: dict[str, list[Server]] = {}
        paths = {servers.path_hash(self._place, order.path): order.path for order in orders}
        for some in split_sorted(HASHES_PER_FILTER, paths):
            filters = {"name": "|".join(some)} | ({"changes-since": LONG_AGO} if deleted else {})
            for described in await self._api.read_all_pages("compute", "/servers/detail", "servers", **filters):
                server = servers.parse_server(described, (paths[each] for each in some), self._place)
                found.setdefault(server.path, []).append(server)
        return found

    async def _read_server(self, task: Task) -> Server | None:
        """Reads a server by its id; None if it is not there, or not ours in this region."""
        try:
            described = (await self._api.get("compute", f"/servers/{task.order.cloud_id}"))["server"]
        except CallRejected as error:
            if error.status in (400, 404):
                return None
            raise
        return servers.parse_server(described) if self._is_ours(described) else None

    def _is_ours(self, described: dict[str, Any]) -> bool:
        return bool((described.get("metadata") or {}).get(OWNER_KEY) == self._place)

    def _needs_order(self, verb: str, task: Task) -> bool:
        """A server in ERROR can only be removed; one that was never built is removed by its creation."""
        vm = task.seen
        if verb == "reboot" and task.ordered and vm is not None and vm.state is VmState.RUNNING:
            task.answer = vm.to_vm_facts()  # Nova shows the task from its acceptance to its end
            return False
        if vm is None or not vm.is_broken or vm.path != task.order.path or task.order.epoch < vm.epoch:
            return super()._needs_order(verb, task)
        if verb in ("terminate", "create"):
            return not task.ordered or verb == "create"
        task.answer = Rejected(f"cannot {verb} {vm.cloud_id}: it is in ERROR: {vm.reason or 'Nova does not say why'}")
        return False

    async def _issue_orders(self, verb: str, tasks: Sequence[Task]) -> None:
        if verb == "create":
            new = [task for task in tasks if task.seen is None]
            for task in new:  # a later action has given an order at its path, even if that VM is gone
                task.answer = late_order_error(task.order.path, task.order.epoch, task.latest_epoch)
            await _gather(self._launch_server, [task for task in new if task.answer is None])
            await _gather(self._remove_failed, [task for task in tasks if task.seen is not None])
        else:
            await _gather(partial(self._apply_verb, verb), tasks)

    async def _launch_server(self, task: Task) -> None:
        """Creates a server, once per token in this process, however many callers there are."""
        token = task.order.token
        if asyncio.get_running_loop().time() < self._unanswered.get(token, 0):
            return  # look again: the call before may still be carried out
        self._unanswered.pop(token, None)
        if token not in self._made:
            self._made[token] = asyncio.ensure_future(self._create_server(task.order))
            while len(self._made) > TOKENS_REMEMBERED:
                self._made.pop(next(iter(self._made)))
        creation = self._made[token]
        try:
            await _wait_for_creation(creation)
            task.ordered = True  # found by its token, not by this id: of two, everybody takes the oldest
        except Busy as error:
            self._conflicts[task.order.path] = str(error)
        except ProviderError as error:
            task.answer = error
        finally:
            if creation.done() and (creation.cancelled() or creation.exception()) and self._made.get(token) is creation:
                del self._made[token]

    async def _create_server(self, order: VmOrder) -> str:
        home = await self._network.find_launch_network(tenant_of(order.path), order.spec.get("network") or {})
        size, image = str(order.spec.get("specId", "")), str(order.spec.get("imageId", ""))
        wanted = {
            **servers.creation_marks(self._place, order),
            "imageRef": self._options.images.get(image, image),
            "flavorRef": await self._find_flavor(self._options.specs.get(size, size)),
            "networks": [{"uuid": home.network}],
            "security_groups": [{"name": group} for group in home.groups],
            **({"key_name": home.key} if home.key else {}),
            **({"availability_zone": self._options.zone} if self._options.zone else {}),
        }
        try:
            return str((await self._api.post("compute", "/servers", {"server": wanted}))["server"]["id"])
        except UnknownOutcome:
            self._unanswered[order.token] = asyncio.get_running_loop().time() + self._options.lag_seconds
            raise

    async def _find_flavor(self, wanted: str) -> str:
        """Returns the id of a flavor that is named by id or name."""
        if wanted not in self._flavors:
            self._flavors = await self.list_flavors()
        return self._flavors.get(wanted, wanted)

    async def list_flavors(self) -> dict[str, str]:
        """Returns the flavors' ids, by id and by name."""
        found = await self._api.read_all_pages("compute", "/flavors", "flavors")
        return {each["name"]: each["id"] for each in found} | {each["id"]: each["id"] for each in found}

    async def _remove_failed(self, task: Task) -> None:
        """Removes a server that could not be built: it would hold quota. Its fault is the answer."""
        assert task.seen is not None
        why = f"{task.seen.cloud_id} could not be built: {task.seen.reason or 'Nova does not say why'}"
        try:
            await self._delete_server(task.seen)
        except Rejected as error:
            why += f"; it is still there: {error}"
        except ProviderError as error:
            task.answer = error
            return
        task.answer = NoCapacity(why) if task.seen.lacked_capacity else Rejected(why)

    async def _apply_verb(self, verb: str, task: Task) -> None:
        """Sends an order. A 409 is no answer: Nova is busy with the server, and is asked again."""
        vm, epoch = task.seen, task.order.epoch
        assert vm is not None
        try:
            if vm.epoch < epoch:
                said = servers.description_of(vm.token, epoch, vm.token_hash)
                await self._api.put("compute", f"/servers/{vm.cloud_id}", {"server": {"description": said}})
            if verb == "terminate":
                await self._delete_server(vm)
            else:
                await self._api.post("compute", f"/servers/{vm.cloud_id}/action", servers.action_body(verb, vm))
        except Busy as error:
            self._conflicts[task.order.path] = str(error)
        except ProviderError as error:
            task.answer = error
        else:
            task.ordered = True

    async def _delete_server(self, server: Server) -> None:
        await self._api.delete("compute", f"/servers/{server.cloud_id}")

    async def _remove_twins(self, made: Sequence[VmFacts]) -> None:
        """Removes younger servers with the same token: a call may be carried out twice on its way to Nova."""
        if not made:
            return
        try:
            orders = [VmOrder(vm.path, vm.token, vm.cloud_id) for vm in made if vm.token]
            found = await self._list_by_path(orders, deleted=False)
            for order in orders:
                twins = [each for each in found.get(order.path, []) if each.made_by(order.token)]
                for twin in sorted(twins, key=attrgetter("age_key")):
                    if twin.cloud_id != order.cloud_id and twin.state is not VmState.TERMINATING:
                        structlog.get_logger("openstack").warning("removing a second server", id=twin.cloud_id)
                        await self._delete_server(twin)
        except ProviderError as error:  # orphans are found by their path later
            structlog.get_logger("openstack").warning("second servers were not looked for", error=str(error))

    def _answer_for_state(self, verb: str, task: Task, vm: Server) -> VmAnswer:
        self._conflicts.pop(task.order.path, None)
        return super()._answer_for_state(verb, task, vm)

    def _answer_after_timeout(self, task: Task) -> VmAnswer:
        if not task.ordered and (conflict := self._conflicts.pop(task.order.path, "")):
            return Busy(f"Nova is still busy after {self._wait_seconds:g} s: {conflict}")
        return super()._answer_after_timeout(task)


async def _wait_for_creation(creation: asyncio.Future[str]) -> str:
    """Waits for a creation. A caller that is cancelled waits too, so that no call of its is in flight afterwards."""
    try:
        await asyncio.wait([creation])
    except asyncio.CancelledError:
        while not creation.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([creation])
        raise
    return creation.result()


def _pick(found: Sequence[Server], order: VmOrder) -> Server | None:
    """Returns the server that an order is about: by its id, or the oldest living one with its token."""
    if order.cloud_id:
        return next((server for server in found if server.cloud_id == order.cloud_id), None)
    made = [server for server in found if server.made_by(order.token)]
    gone = (VmState.TERMINATED, VmState.TERMINATING)
    return min(made, key=lambda server: (server.state in gone, server.age_key), default=None)


async def _gather(call: Callable[[Task], Coroutine[Any, Any, Any]], tasks: Sequence[Task]) -> list[Any]:
    return list(await asyncio.gather(*(call(task) for task in tasks)))
