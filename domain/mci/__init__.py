"""The MCI family: the kinds MCI (a group of VMs), VM and orphan, and their actions.

An MCI's stored status is only its phase: the status that readers see is computed from its VMs at each read.
"""

from __future__ import annotations

from dataclasses import replace

from domain.kinds import InternalProgram, Kind, ObjectSignal, Verb
from domain.mci.messages import ADOPT_ORPHAN, CONTINUE, SCALE_GROUP, WITHDRAW, HoldDecision
from domain.mci.specs import MciSpec, ScaleSpec
from domain.mci.status import aggregate_status
from domain.mci.tables import MCI, ORPHAN, VM, MciPhase, VmStatus
from domain.orphans import OrphanSpec
from domain.simulated import is_simulated_place
from domain.wire import CONTROL_VMS, CREATE_MCI, REMOVE_ORPHAN, REMOVE_VMS


def _allow_requests_by_leases(*verbs: Verb) -> tuple[Verb, ...]:
    """Lets leases request what they do to the MCIs that they reserve, on behalf of whoever made the lease."""
    leased = ("create", "suspend", "resume", "terminate", "delete")
    return tuple(
        replace(verb, programs=("lease",), on_behalf=True) if verb.action in leased else verb for verb in verbs
    )


# fmt: off
_CONTROL_VERBS = (
    Verb("suspend",   CONTROL_VMS, "Stop VMs; resume starts them again."),
    Verb("resume",    CONTROL_VMS, "Start suspended VMs again."),
    Verb("reboot",    CONTROL_VMS, "Restart running VMs."),
    Verb("terminate", CONTROL_VMS, "Terminate VMs; this cannot be undone."),
)

KINDS = (
    Kind(
        table=MCI,
        scope=("ns", "mci"),
        verbs=_allow_requests_by_leases(
            Verb("create",    CREATE_MCI,  "Create a group of VMs across clouds.", MciSpec),
            *_CONTROL_VERBS,
            Verb("refine",    REMOVE_VMS,  "Remove failed and undefined VMs, here and in the cloud."),
            Verb("scale-out", SCALE_GROUP, "Add VMs to a subgroup.", ScaleSpec, takes_no_members=True),
            Verb("scale-in",  SCALE_GROUP, "Remove the last VMs of a subgroup.", ScaleSpec, takes_no_members=True),
            Verb("delete",    REMOVE_VMS,  "Terminate all VMs and remove every record of the group."),
        ),
        help="Groups of VMs across clouds.",
        member="vm",
        places_of=lambda spec: sorted({group.place for group in spec.subGroups if group.csp}),
        aggregate=aggregate_status,
        derived_status=VmStatus.RUNNING,
        title_case=True,
        waiting_statuses=(MciPhase.PREPARED,),
        signals=(
            ObjectSignal(CONTINUE, HoldDecision, "Go on with an MCI that holds: make its VMs.",
                         is_update=True, sender_field="requested_by"),
            ObjectSignal(WITHDRAW, HoldDecision, "Give up an MCI that holds: undo its preparation.",
                         is_update=True, sender_field="requested_by"),
        ),
    ),
    Kind(
        table=VM,
        is_simulated=lambda _spec, placement, _info: is_simulated_place(placement),
        scope=("ns", "mci", "vm"),
        counts_as_vm=True,
        verbs=_CONTROL_VERBS,
        help="Single VMs of a group.",
        title_case=True,
    ),
    Kind(
        table=ORPHAN,
        scope=("ns", "mci", "vm", "orphan"),
        verbs=(
            Verb("remove", REMOVE_ORPHAN, "Terminate a VM that no record knows.", OrphanSpec,
                 programs=(InternalProgram.SELF_HEALING,)),
            Verb("adopt",  ADOPT_ORPHAN,  "Adopt a VM without a record into the record of its path.", OrphanSpec),
        ),
        help="VMs in a cloud that no record knows.",
        has_own_command=True,
    ),
)
# fmt: on
