"""Errors of a client: Temporal or the workers cannot be reached, or do not answer.

A request that a worker refused raises `domain.errors.Refused`.
"""

from __future__ import annotations

from domain.errors import RatchetError


class Unreachable(RatchetError):
    """Temporal or a worker cannot be reached. `hint` says what to do about it."""

    headline = "Temporal cannot be used"
    hint = "check with: starter doctor"

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint or self.hint


class NoWorker(Unreachable):
    """No worker polls the queue, so nothing was started."""

    headline = "no worker: nothing was started"
    hint = "start one with: starter worker (or everything at once: starter up)"

    def __init__(self, queue: str, hint: str = "") -> None:
        super().__init__(f"no worker polls the queue {queue!r}", hint)


class NotPromoted(Unreachable):
    """Only versioned workers poll, and no build of theirs is current, so Temporal gives them nothing new to do."""

    headline = "no build is promoted: nothing was started"

    def __init__(self, deployment: str, build: str) -> None:
        super().__init__(
            f"the workers of the deployment {deployment!r} are there, but none of its builds was promoted",
            f"RATCHET_DEPLOYMENT={deployment} starter build promote {build}",
        )


class Unanswered(Unreachable):
    """The request was sent, and no answer came: whether it will be carried out is not known."""

    headline = "no answer yet"


class LostAnswer(Unanswered):
    """Temporal was lost after the request was sent, before it said whether the action began."""

    headline = "no answer: it is not known whether the action began"

    def __init__(self, action: str, path: str, reason: str) -> None:
        super().__init__(
            f"Temporal was lost while {action} of {path} was asked for: {reason}",
            f"when Temporal is back, see whether it runs: starter explain {path}; if it does not, ask again",
        )


class LostContact(Unreachable):
    """Temporal was lost while somebody waited for an action. The action goes on."""

    headline = "stopped waiting: the action goes on"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(
            f"Temporal was lost, and {path} was not done by then: {reason}; the action goes on when Temporal is back",
            f"starter wait {path}",
        )


class AnswerTooLarge(Unreachable):
    """The answer is larger than Temporal's limit for payloads."""

    headline = "no answer"
    hint = "ask for less at once, such as with --limit or --prefix"
