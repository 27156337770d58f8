"""A process that kills itself with -9 at one of its steps."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import wraps
from typing import Any


class StepCounter:
    """Counts steps, and ends this process at one of them."""

    def __init__(self, last: int) -> None:
        self.count = 0
        self._last = last

    def take(self, *_: object) -> None:
        self.count += 1
        if self.count == self._last:
            os.kill(os.getpid(), signal.SIGKILL)

    def before_and_after(self, owner: Any, name: str) -> None:
        wrapped: Callable[..., Any] = getattr(owner, name)

        @wraps(wrapped)
        async def run(*words: Any, **more: Any) -> Any:
            self.take()
            result = await wrapped(*words, **more)
            self.take()
            return result

        setattr(owner, name, run)
