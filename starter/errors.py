"""Exit codes, and errors as they are printed: what, why, and what to run next."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from client.errors import Unreachable
from domain.errors import Category, RatchetError, Refused, StoreUnavailable
from domain.model import ActionResult


class ExitCode(IntEnum):
    """The CLI's exit codes, for scripts."""

    DONE = 0
    FAILED = 1
    USAGE = 2  # bad options or bad input
    REFUSED = 3
    FORBIDDEN = 4  # whoever asks may not, whatever the status
    UNREACHABLE = 5  # Temporal, a worker or the store
    NOT_FOUND = 6
    PARTLY = 7
    BUSY = 8  # another action has it: the same command may work later
    STILL_WAITING = 124
    INTERRUPTED = 130


EXIT_OF_CATEGORY = {
    Category.CONFLICT: ExitCode.BUSY,
    Category.NOT_ALLOWED: ExitCode.REFUSED,
    Category.QUOTA: ExitCode.REFUSED,
    Category.FORBIDDEN: ExitCode.FORBIDDEN,
    Category.NOT_FOUND: ExitCode.NOT_FOUND,
    Category.INVALID: ExitCode.USAGE,
}

EXIT_OF_RESULT = {
    ActionResult.SUCCEEDED: ExitCode.DONE,
    ActionResult.ALREADY: ExitCode.DONE,
    ActionResult.PARTIAL: ExitCode.PARTLY,
    ActionResult.FAILED: ExitCode.FAILED,
    ActionResult.CANCELLED: ExitCode.FAILED,
}

HEADLINE_OF_CATEGORY = {
    Category.CONFLICT: "busy: nothing was changed",
    Category.NOT_ALLOWED: "not allowed now: nothing was changed",
    Category.QUOTA: "no room, or over a quota: nothing was changed",
    Category.NOT_FOUND: "not found: nothing was changed",
    Category.FORBIDDEN: "forbidden: nothing was changed",
    Category.INVALID: "bad input: nothing was changed",
}

HINT_OF_CATEGORY = {
    Category.FORBIDDEN: "starter whoami",
    Category.INVALID: "starter --help",
    Category.NOT_FOUND: "starter list KIND",
}


class BadUsage(RatchetError):
    """The words of the command line fit no command. Nothing was changed."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


class NotConfirmed(RatchetError):
    """What cannot be undone was not confirmed, and nobody can be asked. Nothing was changed."""


class WaitTimedOut(RatchetError):
    """The --timeout passed before the action ended."""

    def __init__(self, path: str, seconds: float, admitted: bool = True) -> None:
        unknown = f"nobody answered for {path} within {seconds:g} s: it is not known whether the action began"
        super().__init__(f"{path} was not done within {seconds:g} s; the action goes on" if admitted else unknown)
        self.hint = f"starter wait {path}" if admitted else f"see whether it runs: starter explain {path}"


@dataclass(frozen=True)
class PrintedError:
    """An error as it is printed: what, why, what to run next, and the exit code."""

    what: str
    why: str
    next: str
    exit: ExitCode
    kind: str = "failed"  # a word for programs, as in the gateway's `type`

    def to_json_data(self) -> dict[str, object]:
        """Returns the error for programs, with the keys of the gateway's problems and the exit code."""
        return {
            "type": f"urn:ratchet:{self.kind}",
            "title": self.what,
            "detail": self.why,
            "hint": self.next,
            "exit_code": int(self.exit),
        }


def to_printed_error(error: RatchetError) -> PrintedError:
    """Translates an exception into what, why, next, and the exit code."""
    if isinstance(error, Refused):
        hint = error.hint or HINT_OF_CATEGORY.get(error.category, "starter doctor")
        what, code = HEADLINE_OF_CATEGORY[error.category], EXIT_OF_CATEGORY[error.category]
        return PrintedError(what, error.message, hint, code, error.category.value)
    if isinstance(error, Unreachable):
        return PrintedError(error.headline, str(error), error.hint, ExitCode.UNREACHABLE, "unreachable")
    if isinstance(error, BadUsage):
        return PrintedError("bad usage: nothing was changed", str(error), error.hint, ExitCode.USAGE, "usage")
    if isinstance(error, NotConfirmed):
        what, hint = "not confirmed: nothing was changed", "the same command with --yes"
        return PrintedError(what, str(error), hint, ExitCode.REFUSED, "not-confirmed")
    if isinstance(error, WaitTimedOut):
        return PrintedError("stopped waiting", str(error), error.hint, ExitCode.STILL_WAITING, "still-waiting")
    if isinstance(error, StoreUnavailable):
        hint = "is another process at it, or is RATCHET_STORE_URL wrong? then try again"
        return PrintedError("the store cannot be used", str(error), hint, ExitCode.UNREACHABLE, "store-unavailable")
    return PrintedError("failed", str(error), "starter doctor", ExitCode.FAILED)
