"""One transaction of a simulated cloud: what becomes of the calls that were collected for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import sqlalchemy as sa

from domain.errors import NoCapacity, ProviderError, Rejected, Throttled, Unavailable, UnknownOutcome
from domain.faults import Fault, Kind
from domain.ports import Answer, Order, VmState
from providers.simulated.faults import Rule, Rules
from providers.simulated.machines import Machines, key, no_such_vm
from providers.simulated.tables import lock_cloud

Found = Answer | None


class Job(NamedTuple):
    """One VM in one call. `after` is the last rule of the fault script that it has met."""

    verb: str
    region: str
    order: Order
    after: int = 0


@dataclass(frozen=True, slots=True)
class Delay:
    """Not yet: wait, then go on with the rules after this one."""

    rule: Rule


def apply(
    connection: sa.Connection, csp: str, jobs: Sequence[Job], quiet: int | None
) -> tuple[list[Found | Delay], int | None]:
    """The outcome of every job, and the version of the fault script if it holds nothing for this cloud.

    `quiet` is such a version from an earlier transaction: as long as it stands, the script is not read.
    """
    version = lock_cloud(connection, csp)
    rules = Rules() if version == quiet else Rules.read(connection, csp)
    born: defaultdict[str, set[str]] = defaultdict(set)
    for job in jobs:
        if job.verb == "create":
            born[job.region].add(job.order.path)
    machines = Machines.load(connection, csp, (key(csp, job.order) for job in jobs if job.verb != "list"), born)
    outcomes = [_decide(job, rules, machines) for job in jobs]
    machines.save(connection)
    rules.save(connection)
    return outcomes, None if rules else version


def _decide(job: Job, rules: Rules, machines: Machines) -> Found | Delay:
    rule = rules.strike(job.verb, job.region, job.order, job.after) if rules else None
    if rule is None:
        return _work(job, machines)
    if rule.fault.kind in (Kind.HANG, Kind.SLOW):
        return Delay(rule)
    return _suffer(job, rule.fault, machines)


def _suffer(job: Job, fault: Fault, machines: Machines) -> Found:
    reason = fault.message or f"simulated: {fault.kind} on {job.verb}"
    match fault.kind:
        case Kind.LOSE_ANSWER:
            _work(job, machines)
            return UnknownOutcome(reason)
        case Kind.LIE:
            return machines.describe(job.region, job.order, VmState.TERMINATED) or no_such_vm(job.region, job.order)
        case Kind.UNKNOWN_STATUS:
            return machines.describe(job.region, job.order, VmState.UNKNOWN)
        case _:
            return trouble(fault, reason)


def trouble(fault: Fault, reason: str) -> ProviderError:
    """The error of a fault that keeps a call from being carried out."""
    match fault.kind:
        case Kind.THROTTLE:
            return Throttled(reason, fault.retry_after)
        case Kind.UNAVAILABLE:
            return Unavailable(reason)
        case Kind.CAPACITY:
            return NoCapacity(reason)
        case _:
            return Rejected(reason)


def _work(job: Job, machines: Machines) -> Found:
    if job.verb == "list":
        return None  # only the script is asked here: a list is read on its own
    if job.verb == "describe":
        return machines.describe(job.region, job.order)
    return machines.change(job.verb, job.region, job.order)
