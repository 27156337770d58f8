"""One story for each action of each family: what comes before it, the action itself, and how it must end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from domain.model import Outcome
from tests.chaos.world import World

Told = Callable[[World, str], Awaitable[None]]


@dataclass(frozen=True)
class Story:
    """`root` is the path under which everything of the story is; `{ns}` in it is a name of its own each time."""

    name: str
    root: str
    act: Callable[[World, str], Coroutine[Any, Any, Outcome]]
    before: tuple[Told, ...] = ()
    result: str = "succeeded"
    status: str = ""  # of the object afterwards; empty: not looked at
    effects: int | None = None  # what the world outside counted for each thing of ours; None: not looked at
    family: str = "mci"

    def at(self, ns: str) -> str:
        return self.root.format(ns=ns)
