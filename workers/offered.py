"""Which methods of an object are activities: those that say so where they are defined, and no list beside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from temporalio import activity


def activities_of(*owners: object) -> list[Callable[..., Any]]:
    """The activities among the methods of these objects, bound to them."""
    return [getattr(owner, name) for owner in owners for name in dir(type(owner)) if _is_activity(type(owner), name)]


def _is_activity(owner: type, name: str) -> bool:
    method = getattr(owner, name, None)
    return callable(method) and activity._Definition.from_callable(method) is not None
