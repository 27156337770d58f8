"""The lease family: leases of hosts, instances or MCIs for a period, and the pools of hosts that they use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from domain.aliases import BLAZAR_NUMBER, BLAZAR_UUID
from domain.kinds import InternalProgram, Kind, Verb, orphan_verb
from domain.leases import names
from domain.leases.specs import EventFiring, HostSpec, HostUpdateSpec, LeaseChange, LeaseSpec, MciReservation
from domain.leases.tables import EVENT, HOST, LEASE, RESERVATION
from domain.simulated import is_always_simulated

_ONLY_BY_CLOCK = (InternalProgram.CLOCK,)


def list_later_actions(_path: str, spec: LeaseSpec) -> Iterator[tuple[str, str]]:
    """Yields the actions that a lease requests on the MCIs that it reserves, at its start and at its end."""
    for reservation in spec.reservation_specs():
        if isinstance(reservation, MciReservation):
            yield ("create" if reservation.spec else "resume"), reservation.mci
            yield reservation.on_end, reservation.mci


def is_simulated_reservation(spec: Mapping[str, Any], _placement: str, _info: Mapping[str, Any]) -> bool:
    """Hosts and instances are simulated, unless there is a real site; an MCI is as real as its VMs."""
    return spec.get("resource_type") != "mci"


KINDS: tuple[Kind, ...] = (
    Kind(
        table=LEASE,
        scope=("project", "lease"),
        verbs=(
            Verb(
                "create",
                names.CREATE_LEASE,
                "Reserve hosts, instances or an MCI for a period.",
                LeaseSpec,
                leads_to=list_later_actions,
            ),
            Verb("update", names.UPDATE_LEASE, "Change the name, the dates or the sizes of a lease.", LeaseChange),
            Verb(
                "start",
                names.START_LEASE,
                "For the clock: start a lease whose time has come.",
                EventFiring,
                is_internal=True,
                programs=_ONLY_BY_CLOCK,
                on_behalf=True,
                needed_right="create",
            ),
            Verb("end", names.END_LEASE, "End a lease now, before its time.", EventFiring, programs=_ONLY_BY_CLOCK),
            Verb("delete", names.DELETE_LEASE, "Release all that a lease holds, and delete it.", preempts=True),
        ),
        help="Leases of hosts, instances and MCIs.",
        alias_forms=BLAZAR_UUID,
    ),
    Kind(
        table=RESERVATION,
        is_simulated=is_simulated_reservation,
        backend_role="hosts",
        scope=("project", "lease", "reservation"),
        verbs=(orphan_verb("Take back the hosts of a reservation that no record knows."),),
        help="Reservations of a lease.",
        alias_forms=BLAZAR_UUID,
    ),
    Kind(
        table=EVENT,
        scope=("project", "lease", "event"),
        verbs=(
            Verb(
                "announce",
                names.ANNOUNCE_END,
                "For the clock: announce that the lease will end.",
                EventFiring,
                is_internal=True,
                programs=_ONLY_BY_CLOCK,
            ),
        ),
        help="Events of a lease: its start, the announcement of its end, its end.",
        alias_forms=BLAZAR_UUID,
    ),
    Kind(
        table=HOST,
        is_simulated=is_always_simulated,
        backend_role="hosts",
        scope=("pool", "host"),
        serves_all=True,
        verbs=(
            Verb("add", names.CHANGE_HOST, "Add a host to a pool.", HostSpec),
            Verb(
                "fail",
                names.CHANGE_HOST,
                "Mark a host as failed; its leases get other hosts where there are any.",
                programs=(InternalProgram.SELF_HEALING,),
            ),
            Verb("recover", names.CHANGE_HOST, "Mark a host as working again; leases that miss one may get it."),
            Verb(
                "update", names.CHANGE_HOST, "Change properties of a host; leases keep what they have.", HostUpdateSpec
            ),
            Verb("remove", names.CHANGE_HOST, "Remove a host from its pool; refused while a lease has booked it."),
        ),
        help="Hosts of a pool, which leases book.",
        alias_forms=BLAZAR_NUMBER,
    ),
)
