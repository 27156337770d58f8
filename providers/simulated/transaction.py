"""One transaction of a simulated cloud: what becomes of the calls that were collected for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import sqlalchemy as sa

from domain.errors import NoCapacity, ProviderError, Rejected, Throttled, Unavailable, UnknownOutcome
from domain.faults import Fault, FaultKind
from domain.ports import VmAnswer, VmOrder, VmState
from providers.simulated.faults import FaultRule, FaultRules
from providers.simulated.tables import lock_cloud
from providers.simulated.vms import SimulatedVms, key, no_such_vm

MaybeVmAnswer = VmAnswer | None


class VmCall(NamedTuple):
    """One VM in one call. `after` is the last rule of the fault script that it has met."""

    verb: str
    region: str
    order: VmOrder
    after: int = 0


@dataclass(frozen=True, slots=True)
class Delay:
    """Not yet: wait, then go on with the rules after this one."""

    rule: FaultRule


def apply(
    connection: sa.Connection, csp: str, jobs: Sequence[VmCall], quiet: int | None
) -> tuple[list[MaybeVmAnswer | Delay], int | None]:
    """The outcome of every job, and the version of the fault script if it holds nothing for this cloud.

    `quiet` is such a version from an earlier transaction: as long as it stands, the script is not read.
    """
    version = lock_cloud(connection, csp)
    rules = FaultRules() if version == quiet else FaultRules.read(connection, csp)
    born: defaultdict[str, set[str]] = defaultdict(set)
    for job in jobs:
        if job.verb == "create":
            born[job.region].add(job.order.path)
    machines = SimulatedVms.load(connection, csp, (key(csp, job.order) for job in jobs if job.verb != "list"), born)
    outcomes = [_decide(job, rules, machines) for job in jobs]
    machines.save(connection)
    rules.save(connection)
    return outcomes, None if rules else version


def _decide(job: VmCall, rules: FaultRules, machines: SimulatedVms) -> MaybeVmAnswer | Delay:
    rule = rules.strike(job.verb, job.region, job.order, job.after) if rules else None
    if rule is None:
        return _work(job, machines)
    if rule.fault.kind in (FaultKind.HANG, FaultKind.SLOW):
        return Delay(rule)
    return _apply_fault(job, rule.fault, machines)


def _apply_fault(job: VmCall, fault: Fault, machines: SimulatedVms) -> MaybeVmAnswer:
    reason = fault.message or f"simulated: {fault.kind} on {job.verb}"
    match fault.kind:
        case FaultKind.LOSE_ANSWER:
            _work(job, machines)
            return UnknownOutcome(reason)
        case FaultKind.LIE:
            return machines.describe(job.region, job.order, VmState.TERMINATED) or no_such_vm(job.region, job.order)
        case FaultKind.UNKNOWN_STATUS:
            return machines.describe(job.region, job.order, VmState.UNKNOWN)
        case _:
            return fault_error(fault, reason)


def fault_error(fault: Fault, reason: str) -> ProviderError:
    """The error of a fault that keeps a call from being carried out."""
    match fault.kind:
        case FaultKind.THROTTLE:
            return Throttled(reason, fault.retry_after)
        case FaultKind.UNAVAILABLE:
            return Unavailable(reason)
        case FaultKind.CAPACITY:
            return NoCapacity(reason)
        case _:
            return Rejected(reason)


def _work(job: VmCall, machines: SimulatedVms) -> MaybeVmAnswer:
    if job.verb == "list":
        return None  # only the script is asked here: a list is read on its own
    if job.verb == "describe":
        return machines.describe(job.region, job.order)
    return machines.change(job.verb, job.region, job.order)
