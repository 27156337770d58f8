"""The refusal of late orders, in the same words for every provider that stores epochs."""

from __future__ import annotations

from domain.errors import Superseded


def late_order_error(path: str, number: int, seen: int, by: str = "action", final: bool = True) -> Superseded | None:
    """Returns Superseded if a higher number has given an order at this path; `by` names the sort of number."""
    if number >= seen:
        return None
    late = f"the order of {by} {number} for {path} comes too late: {by} {seen} has ordered since"
    return Superseded(late, final=final)
