"""One story for each action of each family: its preparation, the action itself, and its expected end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from domain.model import Outcome
from tests.chaos.world import World

Told = Callable[[World, str], Awaitable[None]]
Act = Callable[[World, str], Coroutine[Any, Any, Outcome]]
Ledger = Callable[[World, str], Awaitable[list[str]]]


@dataclass(frozen=True)
class Story:
    """`root` is the path under which everything of the story is; `{ns}` in it is a name of its own each time."""

    name: str
    root: str
    act: Act
    before: tuple[Told, ...] = ()
    after: tuple[Told, ...] = ()  # whoever was there for the story goes
    on: str = ""  # the object of the action, if it is not the root itself
    beside: tuple[str, ...] = ()  # other paths that the story is about
    result: str = "succeeded"
    status: str = ""  # of the object afterwards; empty: not looked at
    effects: int | None = None  # what the world outside counted for each thing of ours; None: not looked at
    ledger: Ledger | None = None  # what was really done outside to `on`
    told: tuple[str, ...] = ()  # and what should have been, in order
    ending: tuple[tuple[str, str, dict[str, Any] | None], ...] = ()  # path, action, spec: so everything of it goes
    family: str = "mci"
    waits: bool = False  # for something that does not come if its action is stopped
    plain: bool = True  # told a second time after its answer was lost, or cut off, it would be another story

    def at(self, ns: str) -> str:
        return self.root.format(ns=ns)

    def object(self, path: str) -> str:
        """The object of the story's action, from its root."""
        return self.on.format(ns=_ns(path)) or path

    def paths(self, path: str) -> list[str]:
        """The paths of all objects of the story, from its root."""
        return [path, *(each.format(ns=_ns(path)) for each in self.beside)]

    def __str__(self) -> str:
        return f"{self.family} {self.name}"


def _ns(path: str) -> str:
    return path.split(":")[1]


def act(below: str, action: str, **spec: Any) -> Act:
    """An action on the object below the story's root; empty: on the root itself."""

    async def do(world: World, path: str) -> Outcome:
        return await world.do(f"{path}{below}", action, spec=spec or None)

    return do


def done(below: str, action: str, result: str = "succeeded", **spec: Any) -> Told:
    """The same as a preparation, which must end so."""

    async def do(world: World, path: str) -> None:
        outcome = await act(below, action, **spec)(world, path)
        assert outcome.result == result, outcome

    return do
