"""A simulated cloud: calls take time, meet the fault script, and change the cloud's tables in groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import sqlalchemy as sa

from domain.errors import ProviderError, Rejected, Superseded, Unavailable
from domain.faults import Fault
from domain.ports import FIRST_VM, SharedResource, TransactionRunner, VmAnswer, VmFacts, VmKey, VmOrder
from providers.batch import JobBatcher
from providers.simulated.catalogue import list_missing_offers
from providers.simulated.concurrency import Concurrency, InFlightCounter
from providers.simulated.faults import FaultScriptStore
from providers.simulated.provider import SimulatedProvider
from providers.simulated.resources import prepare_resource, release_resource
from providers.simulated.tables import lock_cloud_row, quotas, resources, vms
from providers.simulated.transaction import DelayedCall, MaybeVmAnswer, VmCall, apply_calls
from providers.simulated.vms import SimulatedVm, read_vms, read_vms_page
from providers.steps import why_unsupported


class SimulatedCloud:
    """One simulated cloud. `latency` is seconds per call, `jitter` a fraction of it either way."""

    def __init__(
        self,
        csp: str,
        database: TransactionRunner,
        *,
        latency: float = 0.0,
        jitter: float = 0.0,
        bulk: int = 1,
        journal: Path | None = None,
    ) -> None:
        self.csp = csp
        self.orders_per_call = bulk
        self._provider = SimulatedProvider(csp, database, latency=latency, jitter=jitter)
        self._database = database
        self._in_flight = InFlightCounter(csp, journal)
        self._script = FaultScriptStore(database)
        self._batch: JobBatcher[VmCall, MaybeVmAnswer | DelayedCall] = JobBatcher(self._run_batch)

    async def perform_orders(self, verb: str, region: str, orders: Sequence[VmOrder]) -> list[VmAnswer]:
        if complaint := why_unsupported(self.csp, verb, len(orders), self.orders_per_call):
            return [Rejected(complaint) for _ in orders]
        with self._in_flight.track(self._in_flight.vms, region, len(orders)):
            if self._provider.latency:
                await self._provider.sleep_with_jitter(self._provider.latency)
            found = await self._run_calls([VmCall(verb, region, order) for order in orders])
        return [answer for answer in found if answer is not None]  # only reads return None

    async def describe_vms(self, region: str, orders: Sequence[VmOrder]) -> list[VmFacts | None]:
        """Describes VMs; an error with one of them fails the whole read."""
        with self._in_flight.track(self._in_flight.reads, region):
            await self._provider.sleep_with_jitter(self._provider.latency)
            return [
                _facts_or_raise(one)
                for one in await self._run_calls([VmCall("describe", region, order) for order in orders])
            ]

    async def list_tagged_vms(self, region: str, prefix: str, after: VmKey = FIRST_VM) -> list[VmFacts]:
        with self._in_flight.track(self._in_flight.reads, region):
            await self._provider.sleep_with_jitter(self._provider.latency)
            _facts_or_raise(*await self._run_calls([VmCall("list", region, VmOrder(path=prefix, token=""))]))
            page = partial(read_vms_page, csp=self.csp, region=region, prefix=prefix, after=after)
            return [vm.to_facts() for vm in await self._database.run_transaction(page)]

    async def list_missing_offers(self, region: str, specs: Sequence[str], images: Sequence[str]) -> list[str]:
        with self._in_flight.track(self._in_flight.reads, region):
            return await self._provider.perform_call(
                "validate", region, [""], lambda _: list_missing_offers(self.csp, region, specs, images)
            )

    async def prepare_resource(self, region: str, resource: SharedResource, made: Mapping[str, str]) -> str:
        work = partial(prepare_resource, csp=self.csp, region=region, resource=resource, made=made)
        with self._in_flight.track(self._in_flight.shared, region):
            return await self._provider.perform_call("prepare", region, [_fault_path(region, resource)], work)

    async def release_resource(self, region: str, resource: SharedResource) -> None:
        work = partial(release_resource, csp=self.csp, resource=resource)
        with self._in_flight.track(self._in_flight.shared, region):
            await self._provider.perform_call("release", region, [_fault_path(region, resource)], work)

    async def set_quota(self, region: str, limit: int | None) -> None:
        """Limits the VMs of a region that are not terminated; None removes the limit."""

        def work(connection: sa.Connection) -> None:
            lock_cloud_row(connection, self.csp)
            connection.execute(sa.delete(quotas).where(quotas.c.csp == self.csp, quotas.c.region == region))
            if limit is not None:
                connection.execute(sa.insert(quotas).values(csp=self.csp, region=region, vms=limit))

        await self._database.run_transaction(work)

    async def set_faults(self, faults: Iterable[Fault]) -> None:
        """Replaces the fault script of all clouds in this database."""
        await self._script.replace_rules(faults)

    async def add_fault(self, fault: Fault) -> None:
        await self._script.append_rule(fault)

    async def list_faults(self) -> list[Fault]:
        return await self._script.list_rules()

    async def clear_faults(self) -> None:
        await self._script.replace_rules([])

    async def list_all_vms(self) -> list[SimulatedVm]:
        """Returns all VMs of this cloud, with which audits compare the inventory."""
        return await self._database.run_transaction(lambda connection: read_vms(connection, vms.c.csp == self.csp))

    async def list_regions(self) -> list[str]:
        """Returns the regions where this cloud has or had VMs."""
        query = sa.select(vms.c.region).where(vms.c.csp == self.csp).distinct().order_by(vms.c.region)
        return await self._database.run_transaction(lambda connection: list(connection.execute(query).scalars()))

    async def list_shared_resources(self) -> list[tuple[str, str, int]]:
        """Returns the shared resources: region, sort, number of prepare calls."""
        query = sa.select(resources.c.region, resources.c.what, resources.c.calls).where(resources.c.csp == self.csp)
        return await self._database.run_transaction(
            lambda connection: [(str(row[0]), str(row[1]), int(row[2])) for row in connection.execute(query)]
        )

    def peak_concurrency(self) -> Concurrency:
        """Returns the most calls that this process ever had in flight here at once."""
        return self._in_flight.peak_concurrency()

    def current_concurrency(self) -> Concurrency:
        return self._in_flight.current_concurrency()

    def delayed_paths(self) -> set[str]:
        return self._provider.delayed_paths()

    async def close(self) -> None:
        """Waits for the calls under way."""
        await self._batch.close()

    async def _run_calls(self, jobs: Sequence[VmCall]) -> list[MaybeVmAnswer]:
        """Carries out VM calls; those that meet a delay wait for it together, then continue."""
        outcomes = await self._batch.submit_jobs(jobs)
        settled = [one for one in outcomes if not isinstance(one, DelayedCall)]
        return settled if len(settled) == len(jobs) else await self._resume_delayed(jobs, outcomes)

    async def _resume_delayed(
        self, jobs: Sequence[VmCall], outcomes: Sequence[MaybeVmAnswer | DelayedCall]
    ) -> list[MaybeVmAnswer]:
        delays = [(job, one.rule) for job, one in zip(jobs, outcomes, strict=True) if isinstance(one, DelayedCall)]
        await self._provider.simulate_delays([rule.fault for _, rule in delays], [job.order.path for job, _ in delays])
        late = iter(await self._run_calls([job._replace(after=rule.id) for job, rule in delays]))
        return [next(late) if isinstance(one, DelayedCall) else one for one in outcomes]

    async def _run_batch(self, jobs: list[VmCall]) -> Sequence[MaybeVmAnswer | DelayedCall]:
        def work(connection: sa.Connection) -> list[MaybeVmAnswer | DelayedCall]:
            return apply_calls(connection, self.csp, jobs, self._provider.read_fault_rules(connection))

        try:
            return await self._provider.run_transaction(work)
        except Unavailable as error:
            return [error for _ in jobs]


def _facts_or_raise(found: MaybeVmAnswer) -> VmFacts | None:
    if isinstance(found, ProviderError | Superseded):
        raise found
    return found


def _fault_path(region: str, resource: SharedResource) -> str:
    """Returns the resource's path in the fault script."""
    return f"region:{region}:shared:{resource.what}"
