"""What a command can end with, as exit codes, and the errors that only a client can have."""

from __future__ import annotations

from enum import IntEnum

from domain.errors import Category, RatchetError
from domain.model import Result


class Exit(IntEnum):
    DONE = 0
    FAILED = 1
    USAGE = 2  # bad words or bad input
    REFUSED = 3
    UNREACHABLE = 5  # Temporal, a worker or the store
    NOT_FOUND = 6
    PARTLY = 7
    STILL_WAITING = 124
    INTERRUPTED = 130


OF_CATEGORY = {
    Category.CONFLICT: Exit.REFUSED,
    Category.NOT_ALLOWED: Exit.REFUSED,
    Category.QUOTA: Exit.REFUSED,
    Category.NOT_FOUND: Exit.NOT_FOUND,
    Category.INVALID: Exit.USAGE,
}

OF_RESULT = {
    Result.SUCCEEDED: Exit.DONE,
    Result.ALREADY: Exit.DONE,
    Result.PARTIAL: Exit.PARTLY,
    Result.FAILED: Exit.FAILED,
    Result.CANCELLED: Exit.FAILED,
}


class Unreachable(RatchetError):
    """Nobody is there to answer. `hint` says what to do about it."""

    hint = "check with: starter doctor"


class NoWorker(Unreachable):
    hint = "start one with: starter worker (or everything at once: starter up)"

    def __init__(self, queue: str) -> None:
        super().__init__(f"no worker polls the queue {queue!r}: nothing was started")


class Unanswered(Unreachable):
    """The request was sent; whether it will be carried out is not known yet."""
