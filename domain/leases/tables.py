"""The state tables of leases, reservations, events and hosts, and the relationship table between a lease and its parts.

The words are the source document's: upper case for leases and events, lower case for reservations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from domain.statetable import NONE, SAME, Actor, Row, StateTable


class LeaseStatus(StrEnum):
    """The statuses of a lease."""

    CREATING = "CREATING"
    PENDING = "PENDING"
    STARTING = "STARTING"
    ACTIVE = "ACTIVE"
    UPDATING = "UPDATING"
    TERMINATING = "TERMINATING"
    TERMINATED = "TERMINATED"
    DELETING = "DELETING"
    ERROR = "ERROR"


class ReservationStatus(StrEnum):
    """The statuses of a reservation."""

    PENDING = "pending"
    ACTIVE = "active"
    DELETED = "deleted"
    ERROR = "error"


class EventStatus(StrEnum):
    """The statuses of an event; the names of events are in `EVENTS`."""

    UNDONE = "UNDONE"
    IN_PROGRESS = "IN_PROGRESS"
    DONE = "DONE"
    ERROR = "ERROR"


class HostStatus(StrEnum):
    """The statuses of a host."""

    ADDING = "ADDING"
    UP = "UP"
    FAILING = "FAILING"
    DOWN = "DOWN"
    RECOVERING = "RECOVERING"
    UPDATING = "UPDATING"
    REMOVING = "REMOVING"


# The events of a lease, in the order in which they fire if due together; also the names of their objects.
START, BEFORE_END, END = "start_lease", "before_end_lease", "end_lease"
EVENTS = (START, BEFORE_END, END)

RETURNING = "returning"  # of an orphan only, while its hosts are taken back
L, R, E, H = LeaseStatus, ReservationStatus, EventStatus, HostStatus
_OURS = Actor.CONTROLLER

# fmt: off
LEASE = StateTable("lease", "lease", (
    #   action     from            while           then           else
    Row("create",  NONE,           L.CREATING,     L.PENDING,     L.ERROR),
    Row("start",   L.PENDING,      L.STARTING,     L.ACTIVE,      L.ERROR),
    Row("update",  L.PENDING,      L.UPDATING,     SAME,          SAME),
    Row("update",  L.ACTIVE,       L.UPDATING,     SAME,          SAME),
    Row("update",  L.ERROR,        L.UPDATING,     SAME,          SAME),
    Row("update",  L.TERMINATED,   L.UPDATING,     SAME,          SAME),      # its name only
    Row("end",     L.ACTIVE,       L.TERMINATING,  L.TERMINATED,  L.ERROR),
    Row("end",     L.ERROR,        L.TERMINATING,  L.TERMINATED,  L.ERROR),   # releases what a bad start or end left
    Row("end",     L.TERMINATED,   None,           SAME),                     # requested twice: nothing to do
    *(Row("delete", source,        L.DELETING,     NONE,          L.ERROR) for source in L),  # in any status
    *(Row("reconcile", source,     None,           L.ERROR,       actor=_OURS)  # its parts contradict its status
      for source in (L.PENDING, L.ACTIVE, L.UPDATING, L.TERMINATED)),
))

RESERVATION = StateTable("reservation", "reservation", (
    #   action     from            while  then
    Row("create",  NONE,           None,  R.PENDING, actor=_OURS),
    Row("start",   R.PENDING,      None,  R.ACTIVE,  actor=_OURS),
    Row("start",   R.PENDING,      None,  R.ERROR,   actor=_OURS),
    Row("end",     R.PENDING,      None,  R.DELETED, actor=_OURS),            # its lease never started
    Row("end",     R.ACTIVE,       None,  R.DELETED, actor=_OURS),
    Row("end",     R.ACTIVE,       None,  R.ERROR,   actor=_OURS),
    Row("end",     R.ERROR,        None,  R.DELETED, actor=_OURS),
    *(Row("delete", source,        None,  NONE,      actor=_OURS) for source in R),
    Row("discard", NONE,           RETURNING, NONE,  NONE),                   # hosts that no record knows of
))

EVENT = StateTable("event", "event", (
    #   action      from           while           then          else
    Row("create",   NONE,          None,           E.UNDONE,                 actor=_OURS),
    Row("start",    E.UNDONE,      E.IN_PROGRESS,  E.DONE,       E.ERROR,    actor=_OURS),
    Row("end",      E.UNDONE,      E.IN_PROGRESS,  E.DONE,       E.ERROR,    actor=_OURS),
    Row("end",      E.ERROR,       E.IN_PROGRESS,  E.DONE,       E.ERROR,    actor=_OURS),  # the end is tried again
    Row("announce", E.UNDONE,      E.IN_PROGRESS,  E.DONE,       E.ERROR),
    Row("end",      E.UNDONE,      None,           E.DONE,                   actor=_OURS),  # will never fire: closed
    Row("end",      E.ERROR,       None,           E.DONE,                   actor=_OURS),  # with its lease
    Row("update",   E.DONE,        None,           E.UNDONE,                 actor=_OURS),  # announced too early
    Row("update",   E.ERROR,       None,           E.UNDONE,                 actor=_OURS),
    *(Row("delete", source,        None,           NONE,                     actor=_OURS) for source in E),
))

HOST = StateTable("host", "host", (
    #   action     from     while          then    else
    Row("add",     NONE,    H.ADDING,      H.UP,   H.DOWN),
    Row("fail",    H.UP,    H.FAILING,     H.DOWN, H.DOWN),
    Row("fail",    H.DOWN,  None,          SAME),
    Row("recover", H.DOWN,  H.RECOVERING,  H.UP,   H.DOWN),
    Row("recover", H.UP,    None,          SAME),
    Row("update",  H.UP,    H.UPDATING,    SAME,   SAME),
    Row("update",  H.DOWN,  H.UPDATING,    SAME,   SAME),
    Row("remove",  H.UP,    H.REMOVING,    NONE,   SAME),
    Row("remove",  H.DOWN,  H.REMOVING,    NONE,   SAME),
))

_ANY_RESERVATION, _ANY_EVENT = tuple(R), tuple(E)
_NOT_NOW = (E.UNDONE, E.DONE, E.ERROR)

# The document's relationship table: the statuses that the parts must have for each status of the lease. ERROR and
# rows that say "any" require nothing.
RELATIONS: dict[LeaseStatus, tuple[tuple[ReservationStatus, ...], tuple[EventStatus, ...], tuple[EventStatus, ...]]] = {
    # lease         reservations                       start_lease        end_lease
    L.CREATING:    ((R.PENDING,),                      (E.UNDONE,),       (E.UNDONE,)),
    L.PENDING:     ((R.PENDING,),                      (E.UNDONE,),       (E.UNDONE,)),
    L.STARTING:    ((R.PENDING, R.ACTIVE, R.ERROR),    (E.IN_PROGRESS,),  (E.UNDONE,)),
    L.ACTIVE:      ((R.ACTIVE,),                       (E.DONE,),         (E.UNDONE,)),
    L.TERMINATING: ((R.ACTIVE, R.DELETED, R.ERROR),    (E.DONE,),         (E.IN_PROGRESS,)),
    L.TERMINATED:  ((R.DELETED,),                      (E.DONE,),         (E.DONE,)),
    L.DELETING:    (_ANY_RESERVATION,                  _ANY_EVENT,        _ANY_EVENT),  # or none at all
    L.UPDATING:    (_ANY_RESERVATION,                  _NOT_NOW,          _NOT_NOW),
}
# fmt: on


def describe_contradiction(lease: str, reservations: Iterable[str], events: Mapping[str, str]) -> str:
    """Returns how a lease's parts contradict its status, by the relationship table; empty if they do not."""
    row = RELATIONS.get(LeaseStatus(lease))
    if row is None or lease == L.DELETING:
        return ""
    if missing := _describe_missing_events(events):
        return missing
    wanted, start, end = row
    for status in reservations:
        if status not in wanted:
            return f"a reservation is {status}; a lease under {lease} needs {' or '.join(wanted)}"
    for name, allowed in ((START, start), (END, end)):
        if events[name] not in allowed:
            return f"{name} is {events[name]}; a lease under {lease} needs {' or '.join(allowed)}"
    if lease == L.UPDATING and E.IN_PROGRESS in events.values():
        return "an event is IN_PROGRESS; a lease under UPDATING needs any other status"
    return ""


def why_only_delete_allowed(action: str, events: Mapping[str, str]) -> str:
    """Returns why a lease in ERROR can only be deleted: an event is missing, or says that the lease has ended."""
    if missing := _describe_missing_events(events):
        return missing
    started_or_ended = events[START] == E.IN_PROGRESS or events[END] in (E.IN_PROGRESS, E.DONE)
    if action == "end" and started_or_ended:
        return f"{START} is {events[START]} and {END} is {events[END]}"
    return ""


def _describe_missing_events(events: Mapping[str, str]) -> str:
    return next((f"{name} is missing" for name in EVENTS if name not in events), "")
