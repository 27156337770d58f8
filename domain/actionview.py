"""An action's run as readers see it."""

from __future__ import annotations

from datetime import datetime

from domain.model import FrozenModel, Outcome


class ActionView(FrozenModel):
    """One action as readers see it. `outcome` and `ended_at` are empty while it runs."""

    run: str
    path: str
    action: str
    force: bool = False
    requested_by: str = ""
    reason: str = ""
    request_id: str = ""
    began_at: datetime
    ended_at: datetime | None = None
    outcome: Outcome | None = None
