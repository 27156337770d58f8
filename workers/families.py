"""The families that a worker serves: a line for each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, Protocol

from workers import mci
from workers.parts import Parts


class Family(Protocol):
    """A module of a family in `workers/`."""

    WORKFLOWS: list[type]

    def activities(self, parts: Parts, /) -> dict[str, list[Callable[..., Any]]]:
        """The family's activities, queue by queue."""
        ...


FAMILIES: tuple[Family, ...] = (mci,)

WORKFLOWS: list[type] = [workflow for family in FAMILIES for workflow in family.WORKFLOWS]


def activities(parts: Parts) -> dict[str, list[Callable[..., Any]]]:
    """Every family's activities, queue by queue."""
    found: defaultdict[str, list[Callable[..., Any]]] = defaultdict(list)
    for family in FAMILIES:
        for queue, some in family.activities(parts).items():
            found[queue] += some
    return dict(found)
