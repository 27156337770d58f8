"""Activities of the systems family: inventory writes as local activities, backend orders on the backend's queue."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import closing

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.fence import Fence, OrderRight
from domain.errors import Rejected, join_first, one_line
from domain.model import WHEN_WRITTEN, Move, Query, Step, Stepped
from domain.paths import short
from domain.ports import Inventory
from domain.systems.ports import (
    AcceptDeploy,
    Backend,
    RevertDeploy,
    RollOutResult,
    ServiceOrder,
    ServicesView,
    SystemStore,
    SystemWork,
)
from domain.systems.rules import ServiceFacts, StoredPart, is_at, landed, ordered, removed_part, still_there
from domain.systems.specs import is_service
from domain.systems.tables import DeployStage, PartState

SHOWN = 5  # services named in a reason


class SystemWrites:
    """The family's inventory writes, as local activities. They may run twice."""

    def __init__(self, store: SystemStore) -> None:
        self._store = store

    @activity.defn
    async def accept_deploy(self, acceptance: AcceptDeploy) -> Stepped:
        return await self._store.accept(acceptance)

    @activity.defn
    async def accept_removal(self, reversal: RevertDeploy) -> Stepped:
        return await self._store.accept_removal(reversal)

    @activity.defn
    async def revert_deploy(self, reversal: RevertDeploy) -> Stepped:
        return await self._store.revert(reversal)


class BackendActivities:
    """Orders to one backend. A retry continues from what the attempt before it has done."""

    def __init__(self, backend: Backend, store: SystemStore, inventory: Inventory, fence: Fence) -> None:
        self._backend = backend
        self._store = store
        self._inventory = inventory
        self._fence = fence

    @activity.defn
    async def prepare_system(self, work: SystemWork) -> None:
        """Creates what the system needs at the backend before its first service."""
        try:
            async with self._fence.right(work.path, work.epoch) as right:
                await right.prove()
                await self._backend.prepare(work.path, work.generation())
        except Rejected as error:
            raise ApplicationError(one_line(error), type="Rejected", non_retryable=True) from error

    @activity.defn
    async def roll_out(self, work: SystemWork) -> RollOutResult:
        """Brings every service of the action to its new definition, then removes services that are not in it.

        Returns when all are stable, or as soon as one degrades; the workflow sets the deadline.
        """
        async with self._fence.right(work.path, work.epoch) as right:
            if not work.undo:
                await self._move(work, [Move(path=work.record, to=DeployStage.IN_PROGRESS)])
            parts = await self._store.touched(work)
            services = {
                part.path: part
                for part in parts
                if part.status != PartState.DELETING and is_service(part.spec) and not work.loses(part.path)
            }
            bad, seen = await self._bring_up(work, services, right)
            if bad:
                return RollOutResult(ok=False, reason=_unstable_services(bad))
            if len(parts) > len(services) or not seen <= services.keys():  # else the backend has only what was ordered
                await self._clear(work, parts, right)
            return RollOutResult(ok=True, services=len(services))

    @activity.defn
    async def assess_parts(self, work: SystemWork) -> RollOutResult:
        """Returns which services are not stable yet, or not gone, and why; `ok` if all is written. Changes nothing."""
        touched = await self._store.touched(work)
        facts = {each.path: each for each in await self._backend.facts(work.path)}
        leaving = [facts[part.path] for part in touched if part.status == PartState.DELETING and part.path in facts]
        parts = [part for part in touched if part.status != PartState.DELETING and is_service(part.spec)]
        bad = [part.path for part in parts if _end(part, facts, work) != PartState.STABLE]
        unstable = _unstable_services([facts.get(path) or ServiceFacts(path, -1, 0) for path in bad])
        return RollOutResult(
            ok=not bad and all(part.path == work.path for part in touched),
            reason=unstable or _services_left(leaving),
            services=sum(each.generation == work.generation() for each in facts.values()),
        )

    @activity.defn
    async def settle_parts(self, work: SystemWork) -> RollOutResult:
        """Ends an action: gives each touched part its true status. Waits only for parts to be removed."""
        async with self._fence.right(work.path, work.epoch) as right:
            parts = await self._store.touched(work)
            await self._clear(work, parts, right)
            facts = {each.path: each for each in await self._backend.facts(work.path)}
            ends = {part.path: _end(part, facts, work) for part in parts if part.status != PartState.DELETING}
            await self._move(
                work, [_landing(part, ends, facts) for part in parts if part.path in ends.keys() - {work.path}]
            )
            bad = [path for path, to in ends.items() if to != PartState.STABLE]
            return RollOutResult(
                ok=not bad, reason=_unstable_services([facts.get(path) or ServiceFacts(path, -1, 0) for path in bad]),
                own=ends.get(work.path, ""),
            )  # fmt: skip

    @activity.defn
    async def remove_parts(self, work: SystemWork) -> RollOutResult:
        """Stops all services of the action, waits until they are gone, and deletes their records."""
        async with self._fence.right(work.path, work.epoch) as right:
            if work.record:
                await self._move(work, [Move(path=work.record, to=DeployStage.IN_PROGRESS)])
            parts = await self._store.touched(work)
            await self._clear(work, parts, right)
            if not work.record:
                await right.prove()
                await self._backend.dispose(work.path, work.generation())
            return RollOutResult(ok=True, services=sum(is_service(part.spec) for part in parts))

    @activity.defn
    async def settle_removal(self, work: SystemWork) -> RollOutResult:
        """Ends an incomplete removal: parts that still run become degraded, with the backend's reason."""
        parts = await self._store.touched(work)
        facts = {each.path: each for each in await self._backend.facts(work.path)}
        leaving = [part.path for part in parts if part.status == PartState.DELETING]
        left = {path: [each for each in facts.values() if is_at(each.path, path)] for path in leaving}
        moves = [still_there(path, some) if some else removed_part(path) for path, some in left.items()]
        await self._move(work, moves)
        there = [facts[path] for path in leaving if path in facts]
        return RollOutResult(ok=not there, reason=_services_left(there))

    async def _bring_up(
        self, work: SystemWork, services: Mapping[str, StoredPart], right: OrderRight
    ) -> tuple[list[ServiceFacts], set[str]]:
        """Starts services in dependency order. Returns those that degraded, and the paths of all that were seen."""
        order = ordered({path: part.spec for path, part in services.items()})
        waiting: set[str] = set()
        seen = {work.path} - services.keys()  # the backend was not asked when there is nothing to start
        with closing(self._backend.listen(work.path)) as listener:
            while order.is_active():
                ready = order.get_ready()
                await self._order(work, [services[path] for path in ready], len(ready) < len(services), right)
                waiting.update(ready)
                there = await self._backend.facts(work.path)
                seen = {each.path for each in there}
                facts = [each for each in there if each.path in waiting]
                if bad := [each for each in facts if each.failing(work.generation())]:
                    return bad, seen
                stable = [each.path for each in facts if each.settled(work.generation())]
                moves = [Move(path=path, to=PartState.STABLE, action="deploy") for path in stable if path != work.path]
                await self._move(work, moves)
                waiting.difference_update(stable)
                order.done(*stable)
                if not stable and order.is_active():
                    await listener.news()
        return [], seen

    async def _order(self, work: SystemWork, parts: Collection[StoredPart], again: bool, right: OrderRight) -> None:
        """Orders services, unless a reversal of the action has changed their specs meanwhile."""
        if not parts:
            return
        now = {part.path: part.spec for part in await self._store.touched(work)} if again else {}
        if again and any(now.get(part.path) != part.spec for part in parts):
            raise ApplicationError("the action goes another way by now", type="Rejected", non_retryable=True)
        await right.prove()
        await self._backend.apply([ServiceOrder(part.path, work.generation(), part.spec) for part in parts])

    async def _clear(self, work: SystemWork, parts: Iterable[StoredPart], right: OrderRight) -> None:
        """Stops services below the path that are not in the definition, and deletes the records of removed parts."""
        leaving = [part.path for part in parts if part.status == PartState.DELETING]
        there = await self._store.services(work.path)
        keep = {part.path for part in there if part.status != PartState.DELETING and not work.loses(part.path)}
        extra = {each.path for each in await self._backend.facts(work.path)} - keep
        if extra:
            await right.prove()
            await self._backend.remove(work.path, work.generation(), sorted(keep))
        with closing(self._backend.listen(work.path)) as listener:
            while extra & {each.path for each in await self._backend.facts(work.path)}:
                await listener.news()
        await self._move(work, [removed_part(path) for path in leaving])

    async def _move(self, work: SystemWork, moves: list[Move]) -> None:
        if not moves:
            return
        step = Step(path=work.path, epoch=work.epoch, at=WHEN_WRITTEN, moves=moves)
        stepped = await self._inventory.advance(step)
        if not stepped.made:  # the action has lost its system
            raise ApplicationError("; ".join(stepped.refusals[:SHOWN]), type="Rejected", non_retryable=True)


class BackendReading:
    """What the backends run."""

    def __init__(self, backends: Mapping[str, Backend]) -> None:
        self._backends = backends

    @activity.defn
    async def read_services(self, query: Query) -> ServicesView:
        """Returns what the backends report of the services at and below a path."""
        facts = [each for backend in self._backends.values() for each in await backend.facts(query.path)]
        return ServicesView(services=facts[: query.limit])


def _end(part: StoredPart, facts: Mapping[str, ServiceFacts], work: SystemWork) -> str:
    return landed(part.status, facts.get(part.path), work.generation()) if is_service(part.spec) else PartState.STABLE


def _landing(part: StoredPart, ends: Mapping[str, str], facts: Mapping[str, ServiceFacts]) -> Move:
    path, to = part.path, ends[part.path]
    error = "" if to == PartState.STABLE else facts[path].describe() if path in facts else "never started"
    missed = to == PartState.FAILED and part.status != PartState.PENDING
    return Move(path=path, to=to, action="" if missed else "deploy", error=one_line(error))


def _unstable_services(bad: list[ServiceFacts]) -> str:
    """Lists services that are not stable, with the reasons."""
    return join_first([f"{short(each.path)} has {each.describe()}" for each in bad], SHOWN)


def _services_left(there: list[ServiceFacts]) -> str:
    """Lists services that are not gone, with the reasons."""
    return join_first([f"{short(each.path)} has {each.describe_left()}" for each in there], SHOWN)
