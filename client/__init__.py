"""The Python SDK: connect to Temporal, request actions, wait for them, cancel them, read. The CLI builds on it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from client.actions import ActionClient
    from client.launching import Ticket
    from client.session import connect
    from client.settings import ClientSettings

__all__ = ["ActionClient", "ClientSettings", "Ticket", "connect"]


def __getattr__(name: str) -> Any:
    """Imports names on first use: Temporal's SDK takes most of a second to load, and `starter --help` needs none."""
    if name not in __all__:
        raise AttributeError(f"module 'client' has no attribute {name!r}")
    modules = {"ActionClient": "actions", "ClientSettings": "settings", "Ticket": "launching", "connect": "session"}
    return getattr(import_module(f"client.{modules[name]}"), name)
