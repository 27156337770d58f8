"""Orphans: what lives at a provider under a path of ours, and that no record calls its own."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

from pydantic import Field

from domain.model import FrozenModel, SignedMessage

NO_RECORD = "none"
FIRST_EPOCH = 10**15  # 2001 in microseconds: a lower number is not a time

# The order in which things are listed: provider, path, id.
ProviderObjectKey = tuple[str, str, str]
FIRST_KEY: ProviderObjectKey = ("", "", "")
LAST_ID = "\U0010ffff"  # comes after every id


@dataclass(frozen=True, slots=True)
class ProviderObject:
    """Something that exists at a provider and carries a path of ours."""

    path: str
    provider: str  # who has it: a place of a cloud, the hypervisor, a backend, a cloudlet
    id: str  # its name there
    state: str
    token: str = ""  # of the order that made it, or the number of the last action that ordered it: what is kept there
    since: datetime | None = None

    @classmethod
    def known_by_path(cls, provider: str, path: str, state: str, epoch: int) -> Self:
        """Returns what a provider knows by its path, with the number of the last action that ordered it."""
        return cls(path, provider, path, state, str(epoch or ""), begin_time_of_epoch(epoch))

    @property
    def sort_key(self) -> ProviderObjectKey:
        return self.provider, self.path, self.id


class Orphan(FrozenModel):
    """A thing that is not what the record of its path is about; `record` says what is.

    `target` is the object whose action removes it. It may be adopted by the same object, unless `instead` says why not.
    """

    family: str = ""
    path: str = ""
    provider: str = ""
    id: str = ""
    state: str = ""
    token: str = ""
    since: datetime | None = None
    record: str = ""
    target: str = ""
    instead: str = ""

    @property
    def sort_key(self) -> ProviderObjectKey:
        """Its place among the orphans of its family."""
        return self.provider, self.path, self.id


class OrphanGrantDetails(FrozenModel):
    """The details of a grant on an orphan."""

    place: str = ""
    queue: str = ""  # of the activities that reach it
    own: str = ""  # the cloud id that the record of its path has had so far


class OrphanQuery(SignedMessage):
    """Ask for a page of the orphans at or below a path, after a given one."""

    path: str = ""
    after: Orphan = Field(default_factory=Orphan)  # made when it is needed, as every model is built
    limit: int = Field(500, ge=1, le=1_000)


class OrphansPage(FrozenModel):
    """A page of orphans. `after` is set if there may be more; `silent` are the providers that did not answer."""

    orphans: list[Orphan] = []
    silent: list[str] = []
    after: Orphan | None = None


class OrphanSpec(FrozenModel):
    """The spec of the actions on an orphan."""

    example = {"place": "gcp/europe-west3"}

    place: str = Field(
        "", max_length=400, description="Its provider, as in `starter orphans list`; by default every one is asked."
    )


def begin_time_of_epoch(epoch: int) -> datetime | None:
    """Returns about when an action with this number began: numbers are at least the clock in microseconds."""
    return datetime.fromtimestamp(epoch / 1_000_000, UTC) if epoch >= FIRST_EPOCH else None
