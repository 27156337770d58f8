"""Who a client speaks for: the name, and with a key the proof, on every message that it sends."""

from __future__ import annotations

import getpass
from typing import TypeVar

from domain.message import SignedMessage

A = TypeVar("A", bound=SignedMessage)


class Speaker:
    """Puts a name on messages that have none. Nothing proves it: workers show it as claimed."""

    def __init__(self, name: str = "") -> None:
        self.name = name

    def sign(self, asked: A, purpose: str) -> A:
        """Returns the message with its sender's name. `purpose` is what the message is for: an activity, a signal."""
        return asked if asked.requested_by or not self.name else asked.model_copy(update={"requested_by": self.name})


class VouchedSpeaker(Speaker):
    """Speaks for a caller whom this process has authenticated: the caller's name replaces any other."""

    def __init__(self, own: Speaker, caller: str) -> None:
        super().__init__(caller)
        self._own: Speaker = own._own if isinstance(own, VouchedSpeaker) else own

    def sign(self, asked: A, purpose: str) -> A:
        return self._own.sign(asked.model_copy(update={"requested_by": self.name}), purpose)


def user_name() -> str:
    """Returns the user's name, from the operating system."""
    try:
        return getpass.getuser()[:100]
    except (KeyError, OSError):  # a container's user often has no name
        return ""
