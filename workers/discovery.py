"""Collects activities by their `@activity.defn`, so that no list of them is needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from temporalio import activity


def collect_activities(*owners: object) -> list[Callable[..., Any]]:
    """Returns the methods of these objects that are activities."""
    return [getattr(owner, name) for owner in owners for name in dir(type(owner)) if _is_activity(type(owner), name)]


def _is_activity(owner: type, name: str) -> bool:
    method = getattr(owner, name, None)
    return callable(method) and activity._Definition.from_callable(method) is not None
