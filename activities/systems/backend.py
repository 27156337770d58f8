"""Activities of the systems family: inventory writes as local activities, backend orders on the backend's queue."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import closing

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.fence import Fence, OrderFence
from activities.reads import answered_from_store, answered_in_worker_process
from domain.errors import Rejected, format_one_line, join_first_texts
from domain.model import AT_WRITE_TIME, Move, ReadQuery, Step, StepResult
from domain.paths import is_at_or_below, short_path
from domain.ports import Inventory
from domain.services.ports import Backend, ServiceOrder
from domain.services.rollout import ServiceFacts
from domain.systems.logs import SHOWN_IN_ERROR, describe_last_lines, mask_secrets
from domain.systems.ports import (
    AcceptDeploy,
    DefinitionView,
    RevertDeploy,
    RollOutResult,
    ServiceLogsView,
    ServicesView,
    SystemStore,
    SystemWork,
)
from domain.systems.rules import (
    StoredPart,
    landed_status,
    removal_done_move,
    removal_failed_move,
    rollout_order,
)
from domain.systems.specs import is_service
from domain.systems.tables import DeployStage, PartState

NAMES_SHOWN = 5  # services named in a reason
INSTANCES_SHOWN = 50  # instances whose last lines are in one answer


class SystemRecordActivities:
    """The family's inventory writes, as local activities. They may run twice."""

    def __init__(self, store: SystemStore) -> None:
        self._store = store

    @activity.defn
    async def accept_deploy(self, acceptance: AcceptDeploy) -> StepResult:
        return await self._store.accept_deploy(acceptance)

    @activity.defn
    async def accept_removal(self, reversal: RevertDeploy) -> StepResult:
        return await self._store.accept_removal(reversal)

    @activity.defn
    async def revert_deploy(self, reversal: RevertDeploy) -> StepResult:
        return await self._store.revert_deploy(reversal)


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
            async with self._fence.right_to_order(work.path, work.epoch) as right:
                await right.prove()
                await self._backend.prepare_system(work.path, work.order_generation())
        except Rejected as error:
            raise ApplicationError(format_one_line(error), type="Rejected", non_retryable=True) from error

    @activity.defn
    async def roll_out(self, work: SystemWork) -> RollOutResult:
        """Brings every service of the action to its new definition, then removes services that are not in it.

        Returns when all are stable, or as soon as one degrades; the workflow sets the deadline.
        """
        async with self._fence.right_to_order(work.path, work.epoch) as right:
            if not work.undo:
                await self._apply_moves(work, [Move(path=work.record, to=DeployStage.IN_PROGRESS)])
            parts = await self._store.list_changed_parts(work)
            services = {
                part.path: part
                for part in parts
                if part.status != PartState.DELETING
                and is_service(part.spec)
                and not work.is_removed_by_undo(part.path)
            }
            bad, seen = await self._bring_up_services(work, services, right)
            if bad:
                return RollOutResult(ok=False, reason=await self._describe_unstable_services(bad))
            if len(parts) > len(services) or not seen <= services.keys():  # else the backend has only what was ordered
                await self._remove_superfluous_services(work, parts, right)
            return RollOutResult(ok=True, services=len(services))

    @activity.defn
    async def assess_parts(self, work: SystemWork) -> RollOutResult:
        """Returns which services are not stable yet, or not gone, and why; `ok` if all is written. Changes nothing."""
        touched = await self._store.list_changed_parts(work)
        facts = {fact.path: fact for fact in await self._backend.describe_services(work.path)}
        leaving = [facts[part.path] for part in touched if part.status == PartState.DELETING and part.path in facts]
        parts = [part for part in touched if part.status != PartState.DELETING and is_service(part.spec)]
        bad = [part.path for part in parts if _end_status_of(part, facts, work) != PartState.STABLE]
        unstable = await self._describe_unstable_services(_facts_of(bad, facts))
        return RollOutResult(
            ok=not bad and all(part.path == work.path for part in touched),
            reason=unstable or _describe_remaining_services(leaving),
            services=sum(fact.generation == work.order_generation() for fact in facts.values()),
        )

    @activity.defn
    async def settle_parts(self, work: SystemWork) -> RollOutResult:
        """Ends an action: gives each touched part its true status. Waits only for parts to be removed."""
        async with self._fence.right_to_order(work.path, work.epoch) as right:
            parts = await self._store.list_changed_parts(work)
            await self._remove_superfluous_services(work, parts, right)
            facts = {fact.path: fact for fact in await self._backend.describe_services(work.path)}
            ends = {part.path: _end_status_of(part, facts, work) for part in parts if part.status != PartState.DELETING}
            await self._apply_moves(
                work, [_landing_move(part, ends, facts) for part in parts if part.path in ends.keys() - {work.path}]
            )
            bad = [path for path, to in ends.items() if to != PartState.STABLE]
            reason = await self._describe_unstable_services(_facts_of(bad, facts))
            return RollOutResult(ok=not bad, reason=reason, own=ends.get(work.path, ""))

    @activity.defn
    async def remove_parts(self, work: SystemWork) -> RollOutResult:
        """Stops all services of the action, waits until they are gone, and deletes their records."""
        async with self._fence.right_to_order(work.path, work.epoch) as right:
            if work.record:
                await self._apply_moves(work, [Move(path=work.record, to=DeployStage.IN_PROGRESS)])
            parts = await self._store.list_changed_parts(work)
            await self._remove_superfluous_services(work, parts, right)
            if not work.record:
                await right.prove()
                await self._backend.clean_up_system(work.path, work.order_generation())
            return RollOutResult(ok=True, services=sum(is_service(part.spec) for part in parts))

    @activity.defn
    async def settle_removal(self, work: SystemWork) -> RollOutResult:
        """Ends an incomplete removal: parts that still run become degraded, with the backend's reason."""
        parts = await self._store.list_changed_parts(work)
        facts = {fact.path: fact for fact in await self._backend.describe_services(work.path)}
        leaving = [part.path for part in parts if part.status == PartState.DELETING]
        left = {path: [fact for fact in facts.values() if is_at_or_below(fact.path, path)] for path in leaving}
        moves = [removal_failed_move(path, some) if some else removal_done_move(path) for path, some in left.items()]
        await self._apply_moves(work, moves)
        there = [facts[path] for path in leaving if path in facts]
        return RollOutResult(ok=not there, reason=_describe_remaining_services(there))

    async def _describe_unstable_services(self, bad: list[ServiceFacts]) -> str:
        """Lists services that are not stable, with the reasons and the last lines that the first of them wrote."""
        told = [f"{short_path(facts.path)} has {facts.describe()}" for facts in bad]
        for number, facts in enumerate(bad):
            logs = await self._backend.read_logs(facts.path, SHOWN_IN_ERROR)
            spec = next((part.spec for part in await self._store.list_services(facts.path)), {})
            if last := describe_last_lines([mask_secrets(log, spec) for log in logs]):
                told[number] += f"; it wrote: {last}"
                break
        return join_first_texts(told, NAMES_SHOWN)

    async def _bring_up_services(
        self, work: SystemWork, services: Mapping[str, StoredPart], right: OrderFence
    ) -> tuple[list[ServiceFacts], set[str]]:
        """Starts services in dependency order. Returns those that degraded, and the paths of all that were seen."""
        order = rollout_order({path: part.spec for path, part in services.items()})
        waiting: set[str] = set()
        seen = {work.path} - services.keys()  # the backend was not asked when there is nothing to start
        with closing(self._backend.subscribe_to_changes(work.path)) as listener:
            while order.is_active():
                ready = order.get_ready()
                await self._order_services(work, [services[path] for path in ready], len(ready) < len(services), right)
                waiting.update(ready)
                there = await self._backend.describe_services(work.path)
                seen = {facts.path for facts in there}
                facts = [facts for facts in there if facts.path in waiting]
                if bad := [fact for fact in facts if fact.is_failing(work.order_generation())]:
                    return bad, seen
                stable = [fact.path for fact in facts if fact.is_rolled_out(work.order_generation())]
                moves = [Move(path=path, to=PartState.STABLE, action="deploy") for path in stable if path != work.path]
                await self._apply_moves(work, moves)
                waiting.difference_update(stable)
                order.done(*stable)
                if not stable and order.is_active():
                    await listener.wait_for_change()
        return [], seen

    async def _order_services(
        self, work: SystemWork, parts: Collection[StoredPart], again: bool, right: OrderFence
    ) -> None:
        """Orders services, unless a reversal of the action has changed their specs meanwhile."""
        if not parts:
            return
        now = {part.path: part.spec for part in await self._store.list_changed_parts(work)} if again else {}
        if again and any(now.get(part.path) != part.spec for part in parts):
            raise ApplicationError("the action goes another way by now", type="Rejected", non_retryable=True)
        await right.prove()
        await self._backend.apply_orders(
            [ServiceOrder(part.path, work.order_generation(), part.spec) for part in parts]
        )

    async def _remove_superfluous_services(
        self, work: SystemWork, parts: Iterable[StoredPart], right: OrderFence
    ) -> None:
        """Stops services below the path that are not in the definition, and deletes the records of removed parts."""
        leaving = [part.path for part in parts if part.status == PartState.DELETING]
        there = await self._store.list_services(work.path)
        keep = {
            part.path for part in there if part.status != PartState.DELETING and not work.is_removed_by_undo(part.path)
        }
        await remove_services(self._backend, work, keep, right)
        await self._apply_moves(work, [removal_done_move(path) for path in leaving])

    async def _apply_moves(self, work: SystemWork, moves: list[Move]) -> None:
        if not moves:
            return
        step = Step(path=work.path, epoch=work.epoch, at=AT_WRITE_TIME, moves=moves)
        stepped = await self._inventory.apply_step(step)
        if not stepped.made:  # the action has lost its system
            raise ApplicationError("; ".join(stepped.refusals[:NAMES_SHOWN]), type="Rejected", non_retryable=True)


class BackendReadActivities:
    """What the backends run, and the definitions of deploys."""

    def __init__(self, backends: Mapping[str, Backend], store: SystemStore) -> None:
        self._backends = backends
        self._store = store

    @answered_in_worker_process
    @activity.defn
    async def read_services(self, query: ReadQuery) -> ServicesView:
        """Returns what the backends report of the services at and below a path."""
        facts = [fact for backend in self._backends.values() for fact in await backend.describe_services(query.path)]
        return ServicesView(services=facts[: query.limit])

    @answered_from_store
    @activity.defn
    async def read_definition(self, query: ReadQuery) -> DefinitionView:
        """Returns the definition of a deploy, or the one that it replaced."""
        return await self._store.read_definition(query)


class BackendLogActivities:
    """The logs of one backend's services. They are on the machine of the worker that runs the services."""

    def __init__(self, backend: Backend, store: SystemStore) -> None:
        self._backend = backend
        self._store = store

    @activity.defn
    async def read_service_logs(self, query: ReadQuery) -> ServiceLogsView:
        """Returns the last lines of the services at and below a path, without the secrets in their environments."""
        logs = [
            mask_secrets(log, part.spec)
            for part in sorted(await self._store.list_services(query.path), key=lambda part: part.path)
            for log in await self._backend.read_logs(part.path, query.limit)
        ]
        return ServiceLogsView(logs=logs[:INSTANCES_SHOWN], more=max(len(logs) - INSTANCES_SHOWN, 0))


async def remove_services(backend: Backend, work: SystemWork, keep: Collection[str], right: OrderFence) -> bool:
    """Ends the services at and below a path that are not to be kept, and waits for that. False if there are none."""
    extra = {facts.path for facts in await backend.describe_services(work.path)}.difference(keep)
    if not extra:
        return False
    await right.prove()
    await backend.remove_services(work.path, work.order_generation(), sorted(keep))
    with closing(backend.subscribe_to_changes(work.path)) as listener:
        while extra & {facts.path for facts in await backend.describe_services(work.path)}:
            await listener.wait_for_change()
    return True


def _end_status_of(part: StoredPart, facts: Mapping[str, ServiceFacts], work: SystemWork) -> str:
    return (
        landed_status(part.status, facts.get(part.path), work.order_generation())
        if is_service(part.spec)
        else PartState.STABLE
    )


def _facts_of(paths: Iterable[str], facts: Mapping[str, ServiceFacts]) -> list[ServiceFacts]:
    return [facts.get(path) or ServiceFacts(path, -1, 0) for path in paths]


def _landing_move(part: StoredPart, ends: Mapping[str, str], facts: Mapping[str, ServiceFacts]) -> Move:
    path, to = part.path, ends[part.path]
    error = "" if to == PartState.STABLE else facts[path].describe() if path in facts else "never started"
    missed = to == PartState.FAILED and part.status != PartState.PENDING
    return Move(path=path, to=to, action="" if missed else "deploy", error=format_one_line(error))


def _describe_remaining_services(there: list[ServiceFacts]) -> str:
    """Lists services that are not gone, with the reasons."""
    return join_first_texts(
        [f"{short_path(facts.path)} has {facts.describe_remaining()}" for facts in there], NAMES_SHOWN
    )
