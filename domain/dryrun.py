"""The answer to a dry run: the admission that a request would get now, and what the action would change."""

from __future__ import annotations

from typing import Any

from domain.model import Admission, FrozenModel


class PlannedChange(FrozenModel):
    """What an action would do to one object: where that is, its status now, meanwhile, and after success."""

    path: str
    placement: str = ""
    simulated: bool = False  # it would exist only in a simulation
    came_from: str
    during: str
    then: str


class ActionPreview(FrozenModel):
    """What an action would change, besides its own object."""

    targets: int = 0
    changes: list[PlannedChange] = []  # the first of them
    locks: list[str] = []  # paths that no other action may touch meanwhile, with all that is below
    spec_changes: dict[str, list[Any]] = {}  # field -> before and after


class DryRun(Admission):
    """An admission that was rolled back, with the preview of an action that would go ahead."""

    preview: ActionPreview | None = None
