"""The state table of a volume. Failed: nobody could tell what became of it, so it can only be deleted."""

from __future__ import annotations

from enum import StrEnum

from domain.statetable import NONE, SAME, Actor, Row, StateTable


class VolumeStatus(StrEnum):
    """Every status of a volume."""

    CREATING = "Creating"
    AVAILABLE = "Available"
    ATTACHING = "Attaching"
    IN_USE = "InUse"
    DETACHING = "Detaching"
    RESIZING = "Resizing"
    DELETING = "Deleting"
    FAILED = "Failed"


S = VolumeStatus
# fmt: off
ROWS = (
    #   action     from         while         then         else
    Row("create",  NONE,        S.CREATING,   S.AVAILABLE, S.FAILED),
    Row("attach",  S.AVAILABLE, S.ATTACHING,  S.IN_USE,    SAME),
    Row("detach",  S.IN_USE,    S.DETACHING,  S.AVAILABLE, SAME),
    Row("resize",  S.AVAILABLE, S.RESIZING,   S.AVAILABLE, SAME),
    Row("delete",  S.AVAILABLE, S.DELETING,   NONE,        S.FAILED),
    Row("delete",  S.FAILED,    S.DELETING,   NONE,        S.FAILED),
    Row("discard", NONE,        S.DELETING,   NONE,        NONE),  # what the provider has and no record knows
    # A creation that failed and left nothing outside leaves no record either.
    Row("abandon", S.CREATING,  None,         NONE,        actor=Actor.CONTROLLER),
    # A deletion that failed, or was forced and rejected: the volume is as it was.
    Row("keep",    S.DELETING,  None,         S.AVAILABLE, actor=Actor.CONTROLLER),
    Row("keep",    S.DELETING,  None,         S.IN_USE,    actor=Actor.CONTROLLER),
)
# fmt: on
VOLUME = StateTable(kind="volume", label="volume", rows=ROWS)
