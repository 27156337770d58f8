"""The answer to a dry run: the admission that a request would get now, and what the action would change."""

from __future__ import annotations

from typing import Any

from domain import registry
from domain.model import Admission, FrozenModel


class PlannedChange(FrozenModel):
    """What an action would do to one object: where that is, its status now, meanwhile, and after success."""

    path: str
    action: str = ""  # what it is told, by this action or by one that this action requests
    placement: str = ""  # its cloud and region, or the node of a machine
    simulated: bool = False  # it exists, or would exist, only in a simulation
    came_from: str
    during: str
    then: str


def plan_requested_change(path: str, action: str, status: str, place: str = "") -> PlannedChange:
    """Returns what an action will do to an object of which it requests this action."""
    row = registry.kind_at(path).table.judge(status, action).row
    during, then = (row.during or status, row.success_status(status)) if row else (status, status)
    return PlannedChange(path=path, action=action, placement=place, came_from=status, during=during, then=then)


def keep_status(path: str, action: str, status: str) -> PlannedChange:
    """Returns what an action will do to an object whose status stays."""
    return PlannedChange(path=path, action=action, came_from=status, during=status, then=status)


class ActionPreview(FrozenModel):
    """What an action would change, besides its own object."""

    targets: int = 0
    changes: list[PlannedChange] = []  # the first of them
    locks: list[str] = []  # paths that no other action may touch meanwhile, with all that is below
    spec_changes: dict[str, list[Any]] = {}  # field -> before and after


class DryRun(Admission):
    """An admission that was rolled back, with the preview of an action that would go ahead."""

    preview: ActionPreview | None = None
