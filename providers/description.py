"""The description of a provider: its model in the connections file, and how its clouds are opened and checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import sqlalchemy as sa

from domain.connections import BackendOptions, Connection
from domain.nodecalls import CallNode
from domain.ports import Cloud, TransactionRunner

C = TypeVar("C", bound=Connection)
B = TypeVar("B", bound=BackendOptions)
OpenDatabase = Callable[[Path, Sequence[sa.Table]], TransactionRunner]  # a file of the backend's own, with its tables


@dataclass(frozen=True)
class BackendHost:
    """What a worker lends to a backend: a database of its own, and the way to nodes that other workers serve."""

    open_database: OpenDatabase
    serves_node: Callable[[str], bool]
    call_node: CallNode


class RealCloud(Cloud, Protocol):
    """A cloud outside this program: it needs credentials, and may not answer."""

    async def describe_credentials(self) -> str:
        """Returns where the credentials were found, never the credentials; raises Refused if there are none."""
        ...

    async def check_credentials(self) -> str:
        """Checks the credentials with a harmless read. Returns a short text, or raises a ProviderError."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True)
class CloudAccess(Generic[C]):
    """How a real cloud is opened and its credentials are checked."""

    open_cloud: Callable[[C, float], RealCloud]  # with the timeout of a call; makes no call
    check_prerequisites: Callable[[C], None]  # refuses missing credentials; makes no call


@dataclass(frozen=True)
class CloudProvider(Generic[C]):
    """A provider: one folder of `providers/`, and one line in `providers/registry.py`."""

    name: str  # its name in the connections file
    connection: type[C]  # the model of a connection in the file
    cloud_access: CloudAccess[C] | None = None  # None: simulated
    docs_page: str = ""  # docs page
    install_extra: str = ""  # its extra in pyproject.toml
    logger_names: tuple[str, ...] = ()  # loggers to silence: they would log requests with their authorisation


@dataclass(frozen=True)
class FamilyBackend(Generic[B]):
    """A real backend of one family: one folder of `providers/`, and one line in `providers/registry.py`."""

    role: str  # what it replaces: its key in the connections file, such as hypervisor
    options: type[B]  # the model of its options in the file
    open_backend: Callable[[B, BackendHost], Any]  # the family's port; makes no call
    check_prerequisites: Callable[[B], None]  # refuses a host that cannot run it; makes no call
    docs_page: str = ""
    install_extra: str = ""  # its extra in pyproject.toml
