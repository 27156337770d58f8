"""Hands Ironic nodes over to reservations. Every call takes each node one step further; the caller asks until all are
there.

So an Ironic that dies in a deploy, or forgets it, is asked again; and the right to order is proven before every step.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from typing import Any, TypeVar

from domain.errors import Rejected, Unavailable, UnknownOutcome, format_one_line, join_first_texts
from domain.leases.messages import DesiredHolding, HeldHost, HostFailed
from domain.paths import is_at_or_below, name_of
from providers.epochs import late_order_error
from providers.leases.ironic.nodes import (
    EXTRA_KEY,
    FIELDS,
    IronicNode,
    NodeStep,
    claim_uuid_for_node,
    next_step_to_hold,
    next_step_to_return,
)
from providers.leases.ironic.options import IronicOptions

VERSION = "1.81"  # of the API; fields of a lessee are older
PAGE_SIZE = 1_000
CALL_SECONDS = 30.0
CONCURRENT_NODES = 10  # of one holding: calls to Ironic at once
FREE_PAGE_SIZE = 200  # of free nodes, which are read in one call
FEW_NODES = 3  # are read one by one
_ALREADY_SO = 409  # it is locked by an operation, or has an instance

T = TypeVar("T")
Item = TypeVar("Item")


class IronicHosts:
    """A `HostSite` of bare metal nodes. Nodes are found by their lessee, so our own records are not needed for that."""

    hands_over_at_once = False  # a deploy takes minutes

    def __init__(self, options: IronicOptions) -> None:
        self._options = options

    async def set_reservation_hosts(self, holding: DesiredHolding) -> None:
        """Takes every node one step towards the holding. Raises Unavailable until it is reached."""
        if holding.hosts and not holding.whole:
            raise Rejected("Ironic hands over whole hosts, not parts of them: reserve physical:host")
        wanted = {name_of(host): host for host in holding.hosts}
        async with self._open_ironic_api() as ironic:
            held = await ironic.list_nodes(lessee=holding.token)
            if any(int(node.mark.get("version", 0)) > holding.version for node in held):
                return  # a later order was given since
            nodes = {node.name: node for node in held}
            nodes |= await ironic.find_nodes(wanted.keys() - nodes.keys())
            steps = {
                name: next_step_to_hold(node, holding.token) if name in wanted else next_step_to_return(node)
                for name, node in nodes.items()
            }
            await _run_for_all(
                steps,
                lambda name: self._take_node_step(ironic, steps[name], nodes[name], holding, wanted.get(name, "")),
            )
        self._raise_unless_done(steps)

    async def take_back_hosts(self, reservation: str, generation: int) -> int:
        """Takes back every node of a reservation, of any generation up to this one."""
        async with self._open_ironic_api() as ironic:
            held = [node for node in await ironic.list_held_nodes() if node.mark.get("reservation") == reservation]
            for node in held:
                if late := late_order_error(reservation, generation, _generation_of_node(node), "generation"):
                    raise late
            steps = {node.name: next_step_to_return(node) for node in held}
            await _run_for_all(held, lambda node: self._return_node(ironic, steps[node.name], node))
        self._raise_unless_done(steps)
        return len(held)

    async def list_existing_objects(self, prefix: str, after: tuple[str, str]) -> list[HeldHost]:
        tenancies = await self._list_all_tenancies()
        found = [tenant for tenant in tenancies if not prefix or is_at_or_below(tenant.reservation, prefix)]
        return [tenant for tenant in found if (tenant.reservation, tenant.host) > after][:PAGE_SIZE]

    async def list_held_hosts(self, reservations: Sequence[str]) -> list[HeldHost]:
        """Returns what these reservations hold."""
        wanted = set(reservations)
        return [tenant for tenant in await self._list_all_tenancies() if tenant.reservation in wanted]

    async def _list_all_tenancies(self) -> list[HeldHost]:
        async with self._open_ironic_api() as ironic:
            nodes = await ironic.list_held_nodes()
        tenants = [
            HeldHost(
                host=str(node.mark["host"]),
                reservation=str(node.mark["reservation"]),
                units=1,
                token=node.lessee,
                generation=_generation_of_node(node),
            )
            for node in nodes
        ]
        return sorted(tenants, key=lambda tenant: (tenant.reservation, tenant.host))

    async def _take_node_step(
        self, ironic: IronicApi, step: NodeStep, node: IronicNode, holding: DesiredHolding, host: str
    ) -> None:
        match step:
            case NodeStep.TAKEN:
                raise Rejected(f"host {node.name} is still held by {node.lessee or node.instance}")
            case NodeStep.BROKEN:
                state = "in maintenance" if node.maintenance else node.state
                raise HostFailed(host, f"node {node.name} is {state}{node.error and f': {node.error}'}")
            case NodeStep.NOTHING:
                if host:
                    await self._write_order_version(ironic, node, holding)
            case NodeStep.CLAIM:
                await self._claim_node(ironic, node, holding, host)
                await ironic.set_provision_state(node.name, "active")
            case NodeStep.DEPLOY:
                await ironic.set_provision_state(node.name, "active")
            case NodeStep.DEPLOY_AGAIN:
                await self._redeploy_node(ironic, node, host)
            case _:
                await self._return_node(ironic, step, node)

    async def _claim_node(self, ironic: IronicApi, node: IronicNode, holding: DesiredHolding, host: str) -> None:
        mark = {
            "host": host,
            "reservation": holding.reservation,
            "generation": holding.generation,
            "version": holding.version,
            "tries": 1,
        }
        values = {
            "/instance_uuid": claim_uuid_for_node(holding.token, node.name),
            "/lessee": holding.token,
            f"/extra/{EXTRA_KEY}": mark,
            **{f"/instance_info/{name}": value for name, value in self._options.instance_info.items()},
        }
        await ironic.patch_node(
            node.name, [{"op": "add", "path": path, "value": value} for path, value in values.items()]
        )

    async def _write_order_version(self, ironic: IronicApi, node: IronicNode, holding: DesiredHolding) -> None:
        """Marks a node with the version of the order, by which an earlier one is known to be outdated."""
        if node.mark.get("version") != holding.version:
            change = {"op": "add", "path": f"/extra/{EXTRA_KEY}/version", "value": holding.version}
            await ironic.patch_node(node.name, [change])

    async def _redeploy_node(self, ironic: IronicApi, node: IronicNode, host: str) -> None:
        """Deploys a node once more; after the last try it goes into maintenance, and the lease gets another host."""
        tries = int(node.mark.get("tries", 1))
        if tries >= self._options.deploys:
            reason = f"{tries} deploys failed, the last one: {node.error or 'Ironic gives no reason'}"
            await ironic.set_maintenance(node.name, reason)
            raise HostFailed(host, f"node {node.name} is in maintenance: {reason}")
        await ironic.patch_node(node.name, [{"op": "add", "path": f"/extra/{EXTRA_KEY}/tries", "value": tries + 1}])
        await ironic.set_provision_state(node.name, "active")

    async def _return_node(self, ironic: IronicApi, step: NodeStep, node: IronicNode) -> None:
        if step is NodeStep.UNDEPLOY:
            await ironic.set_provision_state(node.name, "deleted")
        elif step is NodeStep.RELEASE:
            gone = ["/lessee", f"/extra/{EXTRA_KEY}", *(["/instance_uuid"] if node.instance else [])]
            await ironic.patch_node(node.name, [{"op": "remove", "path": path} for path in gone])

    @staticmethod
    def _raise_unless_done(steps: dict[str, NodeStep]) -> None:
        left = [f"{name}: {step}" for name, step in steps.items() if step not in (NodeStep.NOTHING, NodeStep.RELEASE)]
        if left:
            raise Unavailable(f"Ironic is at work ({join_first_texts(sorted(left))})", at_work=True)

    @asynccontextmanager
    async def _open_ironic_api(self) -> AsyncIterator[IronicApi]:
        import httpx

        async with httpx.AsyncClient(
            base_url=str(self._options.url),
            auth=self._options.credentials(),
            headers={"X-OpenStack-Ironic-API-Version": VERSION},
            timeout=CALL_SECONDS,
            trust_env=False,
            verify=self._tls,
        ) as client:
            yield IronicApi(client)

    @cached_property
    def _tls(self) -> Any:
        """Made once: to read the certificates takes longer than a call."""
        import httpx

        return httpx.create_ssl_context(trust_env=False)


class IronicApi:
    """The few calls that leases need."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def find_nodes(self, names: set[str]) -> dict[str, IronicNode]:
        """Returns nodes by name: many in one call, if they are free. Raises Rejected if there is no such node."""
        found: dict[str, IronicNode] = {}
        if len(names) > FEW_NODES:
            free = {"provision_state": "available", "associated": "false"}
            found = {node.name: node for node in await self._read_page(FREE_PAGE_SIZE, free) if node.name in names}
        rest = await _run_for_all(sorted(names - found.keys()), self._find_node)
        return found | {node.name: node for node in rest}

    async def _find_node(self, name: str) -> IronicNode:
        return IronicNode.from_api(await self._call("GET", f"/v1/nodes/{name}", params={"fields": ",".join(FIELDS)}))

    async def list_held_nodes(self) -> list[IronicNode]:
        """Returns all nodes that reservations of ours hold."""
        return [node for node in await self.list_nodes() if node.is_held]

    async def list_nodes(self, **only: str) -> list[IronicNode]:
        found: list[IronicNode] = []
        params = dict(only)
        while True:
            page = await self._read_page(PAGE_SIZE, params)
            found += page
            if len(page) < PAGE_SIZE:
                return found
            params["marker"] = page[-1].uuid

    async def _read_page(self, size: int, params: Mapping[str, str]) -> list[IronicNode]:
        asked = {"fields": ",".join(FIELDS), "limit": size, **params}
        return [IronicNode.from_api(node) for node in (await self._call("GET", "/v1/nodes", params=asked))["nodes"]]

    async def set_provision_state(self, node: str, target: str) -> None:
        await self._call("PUT", f"/v1/nodes/{node}/states/provision", json={"target": target})

    async def patch_node(self, node: str, changes: list[dict[str, Any]]) -> None:
        await self._call("PATCH", f"/v1/nodes/{node}", json=changes)

    async def set_maintenance(self, node: str, reason: str) -> None:
        await self._call("PUT", f"/v1/nodes/{node}/maintenance", json={"reason": format_one_line(reason, 250)})

    async def _call(self, method: str, path: str, **more: Any) -> Any:
        """Makes one call. An answer that a later try may change is Unavailable, any other refusal is Rejected."""
        import httpx

        try:
            answer = await self._client.request(method, path, **more)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise Unavailable(f"Ironic cannot be reached: {format_one_line(error)}") from error
        except httpx.HTTPError as error:
            raise UnknownOutcome(f"Ironic did not answer: {format_one_line(error)}") from error
        if answer.is_success:
            return answer.json() if answer.content else None
        said = format_one_line(answer.text, 300)
        if answer.status_code in (_ALREADY_SO, 429) or answer.status_code >= 500:
            busy = answer.status_code == _ALREADY_SO  # with that node, and will soon be done
            raise Unavailable(f"Ironic says {answer.status_code} to {method} {path}: {said}", at_work=busy)
        raise Rejected(f"Ironic says {answer.status_code} to {method} {path}: {said}")


async def _run_for_all(items: Iterable[Item], call: Callable[[Item], Awaitable[T]]) -> list[T]:
    """Makes a call for each item, some at once. Waits for all of them, then raises the first error."""
    room = asyncio.Semaphore(CONCURRENT_NODES)

    async def run(item: Item) -> T:
        async with room:
            return await call(item)

    ends = await asyncio.gather(*map(run, items), return_exceptions=True)
    for end in ends:
        if isinstance(end, BaseException):
            raise end
    return [end for end in ends if not isinstance(end, BaseException)]


def _generation_of_node(node: IronicNode) -> int:
    return int(node.mark.get("generation", 0))
