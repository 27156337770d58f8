"""The lease family: leases of hosts, instances or MCIs for a period, and the pools of hosts that they use."""

from __future__ import annotations

from domain.kinds import Kind, Program, Verb
from domain.leases import names
from domain.leases.specs import EventFiring, HostSpec, LeaseChange, LeaseSpec
from domain.leases.tables import EVENT, HOST, LEASE, RESERVATION

_BY_CLOCK = (Program.CLOCK,)

KINDS: tuple[Kind, ...] = (
    Kind(
        table=LEASE,
        scope=("project", "lease"),
        verbs=(
            Verb("create", names.CREATE_LEASE, "Reserve hosts, instances or an MCI from when to when.", LeaseSpec),
            Verb("update", names.UPDATE_LEASE, "Change the name, the dates or the sizes of a lease.", LeaseChange),
            Verb(
                "start",
                names.START_LEASE,
                "For the clock: start a lease whose time has come.",
                EventFiring,
                hidden=True,
                programs=_BY_CLOCK,
            ),
            Verb("end", names.END_LEASE, "End a lease now, before its time.", EventFiring, programs=_BY_CLOCK),
            Verb("delete", names.DELETE_LEASE, "Release everything and forget the lease.", preempts=True),
        ),
        help="Leases of hosts, instances and MCIs.",
    ),
    Kind(table=RESERVATION, scope=("project", "lease", "reservation"), verbs=(), help="What a lease holds."),
    Kind(
        table=EVENT,
        scope=("project", "lease", "event"),
        verbs=(
            Verb(
                "announce",
                names.ANNOUNCE_END,
                "For the clock: announce that the lease will end.",
                EventFiring,
                hidden=True,
                programs=_BY_CLOCK,
            ),
        ),
        help="Parts of a lease: when something happens.",
    ),
    Kind(
        table=HOST,
        scope=("pool", "host"),
        verbs=(
            Verb("add", names.CHANGE_HOST, "Add a host to a pool.", HostSpec),
            Verb("fail", names.CHANGE_HOST, "A host has failed: its leases get others where there are any."),
            Verb("recover", names.CHANGE_HOST, "A host is back: leases that miss one may get it."),
            Verb("remove", names.CHANGE_HOST, "Take a host that nobody has booked out of its pool."),
        ),
        help="Hosts that leases take from.",
    ),
)
