"""Builds history lines and merges info; `status.py` writes them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from domain.errors import format_one_line
from domain.statetable import LineEffect

NO_ROW_MESSAGE = "ignored: no row leads there"
NOT_OWNED_MESSAGE = "ignored: the action no longer owns the object"


def history_line(
    path: str,
    at: datetime,
    actor: str,
    action: str,
    source: str,
    to: str,
    epoch: int,
    message: str = "",
    effect: LineEffect = LineEffect.APPLIED,
) -> dict[str, Any]:
    """Returns the columns of one history line."""
    return {
        "path": path,
        "at": at,
        "actor": str(actor),
        "action": action,
        "source": source,
        "to": to,
        "epoch": epoch,
        "message": format_one_line(message),
        "effect": effect.value,
    }


def merge_info(info: dict[str, Any], news: dict[str, Any]) -> dict[str, Any]:
    """Returns an object's info with the updates merged in; a value of None deletes its key."""
    return {key: value for key, value in {**info, **news}.items() if value is not None}
