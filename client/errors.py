"""Errors of a program that asks Ratchet for something: nobody is there, or nobody answers.

A request that was answered with no raises `domain.errors.Refused`.
"""

from __future__ import annotations

from domain.errors import RatchetError


class Unreachable(RatchetError):
    """Nobody is there to answer. `hint` says what to do about it."""

    what = "Temporal cannot be used"
    hint = "check with: starter doctor"

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint or self.hint


class NoWorker(Unreachable):
    """No worker polls the queue, so nothing was started."""

    what = "no worker: nothing was started"
    hint = "start one with: starter worker (or everything at once: starter up)"

    def __init__(self, queue: str) -> None:
        super().__init__(f"no worker polls the queue {queue!r}")


class Unanswered(Unreachable):
    """The request was sent; whether it will be carried out is not known yet."""

    what = "no answer yet"


class TooMuch(Unreachable):
    """An answer that does not fit through Temporal."""

    what = "no answer"
    hint = "ask for less at once, such as with --limit or --prefix"
