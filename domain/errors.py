"""The one error tree. Each class says whether trying again can help.

RatchetError
├── Refused            the request is wrong now; nothing was changed; a retry gives the same answer
├── StoreUnavailable   the inventory cannot be reached; a retry helps
├── Superseded         the right to order is not ours any more; no order was given; the next action decides
└── ProviderError
    ├── Rejected       the provider says no for good; a retry gives the same answer
    │   └── NoCapacity there is no room for more in that region, or the quota is used up
    ├── Throttled      too many calls; a retry helps, after `retry_after`
    ├── Unavailable    the provider did not take the call; a retry helps
    └── UnknownOutcome the call may or may not have been carried out; look before doing anything
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from enum import StrEnum

MAX_ERROR_TEXT = 500  # per VM; a thousand of them must still fit into one small payload


class Category(StrEnum):
    """Why a request was refused. The CLI turns these into exit codes."""

    CONFLICT = "conflict"
    NOT_ALLOWED = "not_allowed"
    NOT_FOUND = "not_found"
    INVALID = "invalid"
    QUOTA = "quota"
    FORBIDDEN = "forbidden"  # whoever asks may not, at any time; NOT_ALLOWED is about the object's status


class RatchetError(Exception):
    """Base class of every error that this project raises on purpose."""


class Refused(RatchetError):
    """The request is wrong now; nothing was changed; a retry gives the same answer."""

    def __init__(
        self,
        category: Category,
        message: str,
        hint: str = "",
        retry_after: int = 0,
        wrong_fields: Sequence[tuple[str, str]] = (),
        pace: float = 0.0,
    ) -> None:
        super().__init__(message)
        self.category = category
        self.message = message
        self.hint = hint
        self.retry_after = retry_after  # seconds until the same request may pass; 0: time alone does not help
        self.wrong_fields = wrong_fields  # each with what is wrong; the message has the first ones
        self.pace = pace  # seconds from one request of the sender's tenant to the next that may pass; 0: any


class StoreUnavailable(RatchetError):
    """The inventory cannot be reached; a retry helps."""


class Superseded(RatchetError):
    """A later action, or another worker, now holds the right to order. No order was given.

    Not a ProviderError: retry loops around provider calls must neither retry this nor ask the provider what happened.
    """

    def __init__(self, message: str, final: bool = False) -> None:
        super().__init__(message)
        self.final = final  # the action is over: another worker may not order either


class ProviderError(RatchetError):
    """A call to a cloud, or to another provider, failed."""


class Rejected(ProviderError):
    """The provider says no for good; a retry gives the same answer."""


class NoCapacity(Rejected):
    """There is no room for more in that region, or the quota is used up."""


class Throttled(ProviderError):
    """Too many calls; a retry helps, after `retry_after` seconds if the provider said so."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Unavailable(ProviderError):
    """The provider did not take the call; a retry helps. `at_work`: it carries out an earlier one, and is well."""

    def __init__(self, message: str, at_work: bool = False) -> None:
        super().__init__(message)
        self.at_work = at_work


class UnknownOutcome(ProviderError):
    """The call may or may not have been carried out; look before doing anything."""


def format_one_line(error: BaseException | str, limit: int = MAX_ERROR_TEXT) -> str:
    """Puts an error on one line of bounded length, fit for a record, a payload and a terminal."""
    text = error if isinstance(error, str) else (str(error) or type(error).__name__)
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def format_count(number: int, noun: str) -> str:
    """Returns a number with its noun: `1 service`, `2 services`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def join_first_texts(texts: Sequence[str], most: int = 5, between: str = "; ") -> str:
    """Joins the first `most` texts, and says how many more there are."""
    more = f"{between}and {len(texts) - most} more" if len(texts) > most else ""
    return between.join(texts[:most]) + more


def find_close_word(word: str, known: Iterable[str]) -> str:
    """Returns the known word that was probably meant; empty if none is close."""
    return next(iter(get_close_matches(word, list(known), 1)), "")


def suggest_word(word: str, known: Iterable[str]) -> str:
    """Returns `did you mean X?` with a space after it; empty if none of the known words is close."""
    close = find_close_word(word, known)
    return f"did you mean {close}? " if close else ""
