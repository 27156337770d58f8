"""The stories of each family: a line for each."""

from __future__ import annotations

from tests.chaos.families import edge, healing, leases, machines, mci, systems
from tests.chaos.stories import Story

STORIES: tuple[Story, ...] = (
    *mci.STORIES,
    *leases.STORIES,
    *systems.STORIES,
    *edge.STORIES,
    *machines.STORIES,
    *healing.STORIES,
)
