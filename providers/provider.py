"""What a provider says of itself: how the connections file speaks of it, and how its clouds are opened and checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from domain.connections import Connection
from domain.ports import Cloud

C = TypeVar("C", bound=Connection)


class RealCloud(Cloud, Protocol):
    """A cloud that somebody else runs: it wants credentials, and may not answer."""

    async def credentials(self) -> str:
        """Where they were found, in words; never what they are. Refused: nowhere."""
        ...

    async def check(self) -> str:
        """Ask something harmless: are the credentials good? Returns a few words; raises a ProviderError."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True)
class Access(Generic[C]):
    """How a real cloud is reached."""

    open: Callable[[C, float], RealCloud]  # with the seconds that a call may take; nobody is called yet
    check_offline: Callable[[C], None]  # Refused if the credentials that are named are not there; calls nobody


@dataclass(frozen=True)
class Provider(Generic[C]):
    """A provider: one folder of `providers/`, and one line in `providers/registry.py`."""

    name: str  # the word for it in the connections file
    connection: type[C]  # what the file may say of a connection
    access: Access[C] | None = None  # None: this program plays the cloud itself
    page: str = ""  # of the docs
    extra: str = ""  # of pyproject.toml: the packages that it needs
    loggers: tuple[str, ...] = ()  # of those packages: they would log every request, with what authorises it
