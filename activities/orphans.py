"""Compares what lives at the providers with the records, in both directions and page by page, for every family.

A family brings a listing for its providers. An orphan is removed by a normal action, the row of its kind's table that
leads from nothing to nothing: under the locks of its path, with an epoch, behind the fence.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.busypaths import BusyPaths
from activities.fence import Fence, OrderRight
from activities.heartbeat import keep_heartbeat
from activities.pages import list_all_objects
from domain import registry, wire
from domain.errors import ProviderError, Superseded, one_line
from domain.locks import EXCLUSIVE_MODES
from domain.model import Grant, InvariantViolation, ObjectView
from domain.orphans import FIRST_KEY, NO_RECORD, LivingThing, Orphan, OrphanQuery, OrphansPage, ThingKey
from domain.paths import kind_of
from domain.ports import Inventory

REFUSED_BY_PROVIDER = "RefusedByProvider"


@dataclass(frozen=True)
class LivingPage:
    """Some of what lives at one provider, in the order of their keys; or why it could not be asked."""

    provider: str
    things: Sequence[LivingThing] = ()
    problem: str = ""


class ProviderListing(ABC):
    """What lives at the providers of one family, and how its records are compared with that."""

    family: str
    kinds: Sequence[str]  # of the records that stand for things there
    absence: str = "there is no such object outside"  # of a record without a thing
    instead: str = ""  # why no record can adopt an orphan, and what to do; empty: one can, by `adopt`

    @abstractmethod
    def list_living(self, prefix: str, after: ThingKey) -> AsyncIterator[LivingPage]:
        """What lives at or below a path, after a key; at least one page of each provider that is asked."""

    def describe_other_owner(self, thing: LivingThing, record: ObjectView | None) -> str:
        """What the record of its path is, if the thing is not the record's own; else nothing."""
        return "" if record else NO_RECORD

    def describe_difference(self, thing: LivingThing, record: ObjectView) -> str:
        """What is not as the record says, of a thing that is its own."""
        return ""

    def must_exist(self, record: ObjectView) -> bool:
        """Must there be a thing for this record?"""
        return False

    def removal_target(self, thing: LivingThing) -> str:
        """The object whose action removes the thing."""
        return thing.path


class RemovingListing(ProviderListing):
    """A listing whose orphans are removed by the kernel's workflow, with one order or a few."""

    removes: Sequence[str]  # the kinds of targets

    @abstractmethod
    async def remove_orphan(self, grant: Grant, right: OrderRight) -> str:
        """Remove what lives at the target's path, and say what was done. Raises a ProviderError; repeatable."""


class OrphanActivities:
    """One instance per worker process."""

    def __init__(self, inventory: Inventory, listings: Iterable[ProviderListing], fence: Fence) -> None:
        self._inventory = inventory
        self._listings = sorted(listings, key=lambda listing: listing.family)
        self._fence = fence
        self._removing = {
            kind: listing
            for listing in self._listings
            if isinstance(listing, RemovingListing)
            for kind in listing.removes
        }

    @activity.defn(name=wire.READ_ORPHANS)
    async def read_orphans(self, query: OrphanQuery) -> OrphansPage:
        """A page: from the orphan asked for on, as many as fit. What an action is about just now is left out."""
        async with keep_heartbeat():
            last = await self._inventory.read_last_epoch()
            held = [hold.path for hold in await self._inventory.list_locks("") if hold.mode in EXCLUSIVE_MODES]
            found, silent, more = await self._find_orphans(query)
            busy = BusyPaths([*held, *await self._inventory.paths_begun_since(last)])
        orphans = [orphan for orphan in found if not busy.is_busy(orphan.path)]
        return OrphansPage(orphans=orphans, silent=silent, after=found[-1] if more else None)

    @activity.defn
    async def remove_orphan(self, grant: Grant) -> str:
        """Remove what lives at the path of an action. Nothing there: done. Fails for good if the provider refuses."""
        async with self._fence.right_to_order(grant.path, grant.epoch) as right:
            try:
                return await self._removing[kind_of(grant.path)].remove_orphan(grant, right)
            except ProviderError as error:
                raise ApplicationError(one_line(error), type=REFUSED_BY_PROVIDER, non_retryable=True) from error

    async def find_violations(self, prefix: str) -> tuple[list[InvariantViolation], int]:
        """I3 and I7 for every family: what is wrong at or below a path, and how much lives there."""
        findings, size = [], 0
        for listing in self._listings_for(prefix):
            own, asked = set[str](), set[str]()
            async for page in listing.list_living(prefix, FIRST_KEY):
                if page.problem:
                    findings.append(InvariantViolation("I3", page.provider, f"could not be asked: {page.problem}"))
                    continue
                asked.add(page.provider)
                size += len(page.things)
                for thing, record, word in await self._compare_with_records(listing, page.things):
                    if word:
                        findings.append(InvariantViolation("I3", thing.path, _describe_orphan(thing, word)))
                        continue
                    own.add(thing.path)
                    if record and (difference := listing.describe_difference(thing, record)):
                        findings.append(InvariantViolation("I7", thing.path, difference))
            findings += [finding async for finding in self._find_missing(listing, prefix, own, asked)]
        return findings, size

    async def _find_missing(
        self, listing: ProviderListing, prefix: str, own: set[str], asked: set[str]
    ) -> AsyncIterator[InvariantViolation]:
        """Records without a thing, unless nobody could be asked for it."""
        for kind in listing.kinds:
            async for view in list_all_objects(
                self._inventory, kind, prefix
            ):  # a page in memory, however many there are
                sure = view.placement in asked if view.placement else bool(asked)
                if sure and view.path not in own and listing.must_exist(view):
                    yield InvariantViolation("I3", view.path, f"is {view.status}, but {listing.absence}")

    async def _find_orphans(self, query: OrphanQuery) -> tuple[list[Orphan], list[str], bool]:
        """Orphans up to the limit, the providers that did not answer, and whether there may be more."""
        found: list[Orphan] = []
        silent: list[str] = []
        for listing in self._listings_for(query.path):
            if listing.family < query.after.family:
                continue
            after = query.after.sort_key if listing.family == query.after.family else FIRST_KEY
            async for page in listing.list_living(query.path, after):
                if page.problem:
                    silent.append(f"{page.provider}: {page.problem}")
                things = [thing for thing in page.things if thing.sort_key > after]
                found += [
                    _to_orphan(listing, thing, word)
                    for thing, _, word in await self._compare_with_records(listing, things)
                    if word
                ]
                if len(found) >= query.limit:
                    return found[: query.limit], silent, True
        return found, silent, False

    async def _compare_with_records(
        self, listing: ProviderListing, things: Sequence[LivingThing]
    ) -> list[tuple[LivingThing, ObjectView | None, str]]:
        """Returns each thing with the record of its path and, if it is an orphan, a text that says why the record is
        not its own.
        """
        records = await self._inventory.read_objects([thing.path for thing in things]) if things else {}
        pairs = ((thing, records.get(thing.path)) for thing in things)
        return [(thing, record, listing.describe_other_owner(thing, record)) for thing, record in pairs]

    def _listings_for(self, prefix: str) -> list[ProviderListing]:
        """The listings that may know something at or below a path."""
        root = prefix.partition(":")[0]
        return [
            listing
            for listing in self._listings
            if not root or any(registry.find_kind(kind).scope[0] == root for kind in listing.kinds)
        ]


async def iterate_living_pages(
    provider: str, read: Callable[[ThingKey], Awaitable[Sequence[LivingThing]]], after: ThingKey
) -> AsyncIterator[LivingPage]:
    """Yields one provider's pages in the order of keys, beginning after `after`. An error becomes the last page."""
    while True:
        try:
            things = await read(after)
        except (ProviderError, Superseded, TimeoutError) as error:
            yield LivingPage(provider, problem=one_line(str(error) or "no answer in time", 200))
            return
        yield LivingPage(provider, things)
        if not things:
            return
        after = things[-1].sort_key


def _to_orphan(listing: ProviderListing, thing: LivingThing, word: str) -> Orphan:
    return Orphan(
        family=listing.family,
        path=thing.path,
        provider=thing.provider,
        id=thing.id,
        state=thing.state,
        token=thing.token,
        since=thing.since,
        record=word,
        target=listing.removal_target(thing),
        instead=listing.instead,
    )


def _describe_orphan(thing: LivingThing, word: str) -> str:
    """An orphan, as `verify` names it."""
    age = f" since {thing.since:%Y-%m-%d %H:%M:%SZ}" if thing.since else ""
    order = f", ordered as {thing.token}" if thing.token else ""
    record = "no record knows it" if word == NO_RECORD else f"its record is {word}"
    return f"is {thing.state} in {thing.provider} as {thing.id}{age}{order}, but {record}; see: starter orphans list"
