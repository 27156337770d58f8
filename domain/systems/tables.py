"""The state tables of systems, of their parts, and of the deploys and teardowns that change them.

A part is a service, or a system inside the system. The status shown of a system, or of a part with parts, is computed
from the services below it; the stored status is only its phase.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from domain.statetable import NONE, SAME, Actor, Row, StateTable

BACKEND = "Backend"  # the actor: a backend that reports the state of services


class PartState(StrEnum):
    """The statuses of systems and of their parts."""

    PENDING = "pending"
    FAILED = "failed"
    DELETING = "deleting"
    STABLE = "stable"
    UPDATING = "updating"
    SCALING = "scaling"
    DEGRADED = "degraded"


class DeployStage(StrEnum):
    """The statuses of a deploy or a teardown."""

    PENDING = "pending"
    ACCEPTED = "accepted"
    IN_PROGRESS = "in progress"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


S, G = PartState, DeployStage
_AT_REST = (S.STABLE, S.DEGRADED, S.FAILED, S.SCALING)

# fmt: off
PART = StateTable("part", "Part", (
    #   action      from         while        then       else
    Row("deploy",   NONE,        S.PENDING,   S.STABLE,  S.FAILED),
    Row("deploy",   S.STABLE,    S.UPDATING,  S.STABLE,  S.DEGRADED),
    Row("deploy",   S.DEGRADED,  S.UPDATING,  S.STABLE,  S.DEGRADED),
    Row("deploy",   S.FAILED,    S.UPDATING,  S.STABLE,  S.DEGRADED),
    Row("deploy",   S.SCALING,   S.UPDATING,  S.STABLE,  S.DEGRADED),               # at rest, and too few or too many
    *(Row("remove", source,      S.DELETING,  NONE,      S.DEGRADED, actor=Actor.GROUP) for source in _AT_REST),
    Row("rescale",  S.UPDATING,  None,        S.SCALING,  actor=Actor.CONTROLLER),  # only their number changes
    Row("miss",     S.UPDATING,  None,        S.FAILED,   actor=Actor.CONTROLLER),  # it was never started
    Row("rollback", S.PENDING,   None,        S.DELETING, actor=Actor.CONTROLLER),  # it was new
    Row("rollback", S.PENDING,   None,        NONE,       actor=Actor.CONTROLLER),
    *(Row("rollback", S.DELETING, None,       source,     actor=Actor.CONTROLLER,   # its removal is taken back in time
          rests=source == S.SCALING) for source in _AT_REST),
    Row("observe",  S.STABLE,    None,        S.DEGRADED, actor=BACKEND),           # instances come and go
    Row("observe",  S.DEGRADED,  None,        S.STABLE,   actor=BACKEND),
    Row("observe",  S.FAILED,    None,        S.STABLE,   actor=BACKEND),
    Row("observe",  S.STABLE,    None,        S.SCALING,  actor=BACKEND, rests=True),  # wrong number, none failed
    Row("observe",  S.DEGRADED,  None,        S.SCALING,  actor=BACKEND, rests=True),
    Row("observe",  S.SCALING,   None,        S.STABLE,   actor=BACKEND),
    Row("observe",  S.SCALING,   None,        S.DEGRADED, actor=BACKEND),
    *(Row("observe", source,     None,        NONE,       actor=BACKEND) for source in _AT_REST),  # its removal, late
    Row("discard",  NONE,        S.DELETING,  NONE,       NONE),                    # a service that no record knows
), passing_statuses=(S.SCALING,))

SYSTEM = StateTable("system", "System", (
    #   action      from         while        then       else
    Row("create",   NONE,        S.PENDING,   S.STABLE,  S.FAILED),
    Row("deploy",   S.STABLE,    S.UPDATING,  S.STABLE,  SAME),       # stable: its status is computed from its services
    Row("teardown", S.STABLE,    S.UPDATING,  S.STABLE,  SAME),
    Row("delete",   S.STABLE,    S.DELETING,  NONE,      S.FAILED),
    Row("delete",   S.FAILED,    S.DELETING,  NONE,      S.FAILED),
))


def _stage_table(action: str, label: str) -> StateTable:
    return StateTable(action, label, (
        #   action    from           while       then           else
        Row(action,   NONE,          G.PENDING,  G.SUCCEEDED,   G.FAILED),
        Row("accept", G.PENDING,     None,       G.ACCEPTED,    actor=Actor.CONTROLLER),
        Row("begin",  G.ACCEPTED,    None,       G.IN_PROGRESS, actor=Actor.CONTROLLER),
        Row("end",    G.IN_PROGRESS, None,       G.SUCCEEDED,   actor=Actor.CONTROLLER),
        *(Row("end",  source,        None,       G.FAILED,      actor=Actor.CONTROLLER)
          for source in (G.PENDING, G.ACCEPTED, G.IN_PROGRESS)),
        *(Row("forget", source,      None,       NONE,          actor=Actor.CONTROLLER)  # together with its system
          for source in (G.SUCCEEDED, G.FAILED)),
    ), passing_statuses=(G.ACCEPTED, G.IN_PROGRESS))


DEPLOY = _stage_table("deploy", "Deploy")
TEARDOWN = _stage_table("teardown", "Teardown")
# fmt: on

# The first letter in the name of a deploy or a teardown: d1, t2.
NUMBER_PREFIX_OF = {"deploy": "d", "teardown": "t"}


def derive_status(phase: str, counts: Mapping[str, int]) -> str:
    """Computes the status of a system, or of a part with parts, from its services', in the source document's order.

    A service that is new, or being removed, has a definition that was not observed yet: it counts as updating.
    """
    if phase in (S.PENDING, S.FAILED, S.DELETING) or not any(counts.values()):
        return phase

    def has_any(*states: PartState) -> bool:
        return any(counts.get(state, 0) for state in states)

    if has_any(S.DEGRADED, S.FAILED):
        return S.DEGRADED
    if has_any(S.UPDATING, S.PENDING, S.DELETING):
        return S.UPDATING
    if has_any(S.SCALING):
        return S.SCALING
    return S.STABLE
