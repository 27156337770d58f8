"""The Python SDK: connect to Temporal, ask for actions, wait, cancel, read. Workers and the CLI build on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from client.actions import ActionClient
    from client.launching import Ticket
    from client.session import connect
    from client.settings import ClientSettings

__all__ = ["ActionClient", "ClientSettings", "Ticket", "connect"]


def __getattr__(name: str) -> Any:
    """Loads Temporal's SDK with the first use: it takes most of a second, which `starter --help` does without."""
    if name not in __all__:
        raise AttributeError(f"module 'client' has no attribute {name!r}")
    from client.actions import ActionClient
    from client.launching import Ticket
    from client.session import connect
    from client.settings import ClientSettings

    names = {"ActionClient": ActionClient, "ClientSettings": ClientSettings, "Ticket": Ticket, "connect": connect}
    globals().update(names)
    return names[name]
