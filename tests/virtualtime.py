"""Time that passes only while nothing is done: a busy machine reaches no deadline in it."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any


class _Jumping(selectors.DefaultSelector):
    """Instead of waiting it moves the clock."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(timeout if timeout is None else 0)
        if not found:
            self.now += timeout or 0
        return found


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def in_virtual_time(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Runs a test in an event loop of its own, whose clock jumps to the next timer. For tests without input."""

    @wraps(test)
    def run() -> None:
        with asyncio.Runner(loop_factory=_VirtualLoop) as runner:
            runner.run(test())

    return run
