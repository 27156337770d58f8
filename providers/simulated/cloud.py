"""A simulated cloud: calls take time, meet the fault script, and change the cloud's tables in groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from domain.errors import ProviderError, Rejected, StoreUnavailable, Superseded
from domain.faults import Fault
from domain.ports import SharedResource, Transactions, VmAnswer, VmFacts, VmOrder
from providers.simulated.batch import Batch
from providers.simulated.concurrency import InFlightCounter, Peaks
from providers.simulated.faults import FaultScriptStore
from providers.simulated.provider import SimulatedProvider
from providers.simulated.resources import CallResult, Preparation, Release, ResourceCall, Validation
from providers.simulated.tables import lock_cloud, quotas, resources, vms
from providers.simulated.transaction import Delay, MaybeVmAnswer, VmCall, apply
from providers.simulated.vms import VERBS, Vm, read_vms
from providers.tables import below


class SimulatedCloud:
    """One simulated cloud. `latency` is seconds per call, `jitter` a fraction of it either way."""

    def __init__(
        self,
        csp: str,
        database: Transactions,
        *,
        latency: float = 0.0,
        jitter: float = 0.0,
        seed: int | None = None,
        bulk: int = 1,
        journal: Path | None = None,
    ) -> None:
        self.csp = csp
        self.bulk = bulk
        self._provider = SimulatedProvider(csp, database, latency=latency, jitter=jitter, seed=seed)
        self._database = database
        self._ledger = InFlightCounter(csp, journal)
        self._script = FaultScriptStore(database)
        self._batch: Batch[VmCall, MaybeVmAnswer | Delay] = Batch(self._transact)

    async def perform(self, verb: str, region: str, orders: Sequence[VmOrder]) -> list[VmAnswer]:
        if complaint := self._complaint(verb, orders):
            return [Rejected(complaint) for _ in orders]
        with self._ledger.changing(region, len(orders)):
            if self._provider.latency:
                await self._provider.pause(self._provider.latency)
            found = await self._run_calls([VmCall(verb, region, order) for order in orders])
        return [answer for answer in found if answer is not None]  # only reads return None

    async def describe(self, region: str, orders: Sequence[VmOrder]) -> list[VmFacts | None]:
        """Describes VMs; an error with one of them fails the whole read."""
        with self._ledger.reading(region):
            await self._provider.pause(self._provider.latency)
            return [
                _facts(one) for one in await self._run_calls([VmCall("describe", region, order) for order in orders])
            ]

    async def list_tagged(self, region: str, prefix: str) -> list[VmFacts]:
        """Lists VMs at or below a path, including terminated ones."""
        with self._ledger.reading(region):
            await self._provider.pause(self._provider.latency)
            _facts(*await self._run_calls([VmCall("list", region, VmOrder(path=prefix, token=""))]))
            return [vm.facts() for vm in await self._read(vms.c.region == region, below(vms.c.path, prefix))]

    async def validate(self, region: str, specs: Sequence[str], images: Sequence[str]) -> list[str]:
        with self._ledger.reading(region):
            found = await self._resource_call(Validation(region, tuple(specs), tuple(images)))
        return found if isinstance(found, list) else []

    async def prepare(self, region: str, resource: SharedResource, made: Mapping[str, str]) -> str:
        with self._ledger.sharing(region):
            return str(await self._resource_call(Preparation(region, resource, made)))

    async def release(self, region: str, resource: SharedResource) -> None:
        with self._ledger.sharing(region):
            await self._resource_call(Release(region, resource))

    async def set_quota(self, region: str, limit: int | None) -> None:
        """Limits the VMs of a region that are not terminated; None removes the limit."""

        def work(connection: sa.Connection) -> None:
            lock_cloud(connection, self.csp)
            connection.execute(sa.delete(quotas).where(quotas.c.csp == self.csp, quotas.c.region == region))
            if limit is not None:
                connection.execute(sa.insert(quotas).values(csp=self.csp, region=region, vms=limit))

        await self._database.run(work)

    async def set_faults(self, faults: Iterable[Fault]) -> None:
        """Replaces the fault script of all clouds in this database."""
        await self._script.replace(faults)

    async def add_fault(self, fault: Fault) -> None:
        await self._script.append(fault)

    async def faults(self) -> list[Fault]:
        return await self._script.rules()

    async def clear_faults(self) -> None:
        await self._script.replace([])

    async def books(self) -> list[Vm]:
        """Returns all VMs of this cloud, with which audits compare the inventory."""
        return await self._read()

    async def regions(self) -> list[str]:
        """Returns the regions where this cloud has or had VMs."""
        query = sa.select(vms.c.region).where(vms.c.csp == self.csp).distinct().order_by(vms.c.region)
        return await self._database.run(lambda connection: list(connection.execute(query).scalars()))

    async def shared(self) -> list[tuple[str, str, int]]:
        """Returns the shared resources: region, sort, number of prepare calls."""
        query = sa.select(resources.c.region, resources.c.what, resources.c.calls).where(resources.c.csp == self.csp)
        return await self._database.run(
            lambda connection: [(str(row[0]), str(row[1]), int(row[2])) for row in connection.execute(query)]
        )

    def peaks(self) -> Peaks:
        """Returns the most calls that this process ever had in flight here at once."""
        return self._ledger.peaks()

    def in_flight(self) -> Peaks:
        return self._ledger.now()

    async def close(self) -> None:
        """Waits for the calls under way."""
        await self._batch.close()

    def _complaint(self, verb: str, orders: Sequence[VmOrder]) -> str:
        if verb not in VERBS:
            return f"unknown verb {verb!r}: {self.csp} knows {', '.join(VERBS)}"
        if len(orders) > self.bulk:
            return f"{len(orders)} VMs in one call are too many: {self.csp} takes {self.bulk}"
        return ""

    async def _resource_call(self, call: ResourceCall) -> CallResult:
        """Makes one call about a region's shared resources."""
        return await self._provider.call(call.verb, call.region, [call.path], partial(call.carry_out, csp=self.csp))

    async def _run_calls(self, jobs: Sequence[VmCall]) -> list[MaybeVmAnswer]:
        """Carries out VM calls; those that meet a delay wait for it together, then continue."""
        outcomes = await self._batch.submit(jobs)
        settled = [one for one in outcomes if not isinstance(one, Delay)]
        return settled if len(settled) == len(jobs) else await self._resume(jobs, outcomes)

    async def _resume(self, jobs: Sequence[VmCall], outcomes: Sequence[MaybeVmAnswer | Delay]) -> list[MaybeVmAnswer]:
        delays = [(job, one.rule) for job, one in zip(jobs, outcomes, strict=True) if isinstance(one, Delay)]
        await self._provider.wait([rule.fault for _, rule in delays])
        late = iter(await self._run_calls([job._replace(after=rule.id) for job, rule in delays]))
        return [next(late) if isinstance(one, Delay) else one for one in outcomes]

    async def _transact(self, jobs: list[VmCall]) -> Sequence[MaybeVmAnswer | Delay]:
        def work(connection: sa.Connection) -> list[MaybeVmAnswer | Delay]:
            return apply(connection, self.csp, jobs, self._provider.rules(connection))

        try:
            return await self._database.run(work)
        except (StoreUnavailable, SQLAlchemyError) as error:
            return [self._provider.failed(error) for _ in jobs]

    async def _read(self, *where: sa.ColumnElement[bool]) -> list[Vm]:
        return await self._database.run(lambda connection: read_vms(connection, vms.c.csp == self.csp, *where))


def _facts(found: MaybeVmAnswer) -> VmFacts | None:
    if isinstance(found, ProviderError | Superseded):
        raise found
    return found
