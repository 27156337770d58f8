"""One transaction of a simulated cloud, with all calls that were collected for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import sqlalchemy as sa

from domain.faults import Fault, FaultKind
from domain.ports import VmAnswer, VmOrder, VmState
from providers.simulated.faults import FaultRule, LockedFaultRules
from providers.simulated.provider import DELAY_KINDS, error_of_fault
from providers.simulated.vms import LockedVms, cloud_id_of_order, no_such_vm_error, shared_resources_of_order

MaybeVmAnswer = VmAnswer | None


class VmCall(NamedTuple):
    """One VM in one call. `after` is the id of the last fault rule that it has met."""

    verb: str
    region: str
    order: VmOrder
    after: int = 0


@dataclass(frozen=True, slots=True)
class DelayedCall:
    """Outcome of a call that must wait before it continues with the rules after this one."""

    rule: FaultRule


def apply_calls(
    connection: sa.Connection, csp: str, jobs: Sequence[VmCall], rules: LockedFaultRules
) -> list[MaybeVmAnswer | DelayedCall]:
    """Returns the outcome of every call. The caller holds the cloud's lock and passes its fault rules."""
    born: defaultdict[str, set[str]] = defaultdict(set)
    used: set[str] = set()
    for job in jobs:
        if job.verb == "create":
            born[job.region].add(job.order.path)
            used.update(shared_resources_of_order(job.order).values())
    machines = LockedVms(
        connection, csp, (cloud_id_of_order(csp, job.order) for job in jobs if job.verb != "list"), born, used
    )
    outcomes = [_apply_call(job, rules, machines) for job in jobs]
    machines.save_vms(connection)
    rules.save_rule_counts(connection)
    return outcomes


def _apply_call(job: VmCall, rules: LockedFaultRules, machines: LockedVms) -> MaybeVmAnswer | DelayedCall:
    rule = rules.take_matching_rule(job.verb, job.region, job.order.path, job.after) if rules else None
    if rule is None:
        return _carry_out_call(job, machines)
    return DelayedCall(rule) if rule.fault.kind in DELAY_KINDS else _apply_fault(job, rule.fault, machines)


def _apply_fault(job: VmCall, fault: Fault, machines: LockedVms) -> MaybeVmAnswer:
    match fault.kind:
        case FaultKind.LOSE_ANSWER:
            _carry_out_call(job, machines)
            return error_of_fault(fault, job.verb)
        case FaultKind.LIE:
            return machines.describe_vm(job.region, job.order, VmState.TERMINATED) or no_such_vm_error(
                job.region, job.order
            )
        case FaultKind.UNKNOWN_STATUS:
            return machines.describe_vm(job.region, job.order, VmState.UNKNOWN)
        case _:
            return error_of_fault(fault, job.verb)


def _carry_out_call(job: VmCall, machines: LockedVms) -> MaybeVmAnswer:
    if job.verb == "list":
        return None  # checks the fault script only; the list is read separately
    if job.verb == "describe":
        return machines.describe_vm(job.region, job.order)
    return machines.change_vm(job.verb, job.region, job.order)
