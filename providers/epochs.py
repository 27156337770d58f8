"""Refuses orders of an action that a later one has overtaken: every provider that keeps an epoch says it alike."""

from __future__ import annotations

from domain.errors import Superseded


def late_order(path: str, number: int, seen: int, by: str = "action", final: bool = True) -> Superseded | None:
    """Why an order comes too late, if a higher number has ordered something at this path; `by` says whose number."""
    if number >= seen:
        return None
    late = f"the order of {by} {number} for {path} comes too late: {by} {seen} has ordered since"
    return Superseded(late, final=final)
