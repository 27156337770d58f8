"""The chaos stories of every family and of self-healing."""

from __future__ import annotations

from tests.chaos.stories import Story
from tests.registry import NAMES, module_of

_MODULES = {name: module_of(name, __name__) for name in (*NAMES, "healing")}
STORIES: tuple[Story, ...] = tuple(story for module in _MODULES.values() for story in module.STORIES)
# Together these pass through every activity. The long run follows all stories.
COVERING = {f"{family} {name}" for family, module in _MODULES.items() for name in module.COVERING}
