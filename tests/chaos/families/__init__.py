"""The chaos stories of every family and of self-healing."""

from __future__ import annotations

from tests.chaos.stories import Story
from tests.registry import NAMES, module_of

STORIES: tuple[Story, ...] = tuple(story for name in (*NAMES, "healing") for story in module_of(name, __name__).STORIES)
