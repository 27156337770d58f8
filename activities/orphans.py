"""Compares what lives at the providers with the records, in both directions and page by page, for every family.

A family brings a listing for its providers. An orphan is removed by a normal action, the row of its kind's table that
leads from nothing to nothing: under the locks of its path, with an epoch, behind the fence.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import asdict

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.busypaths import BusyPaths
from activities.fence import Fence, OrderFence
from activities.heartbeat import send_heartbeats
from activities.objectpages import list_all_objects
from domain import registry, wire
from domain.errors import ProviderError, Superseded, format_count, format_one_line
from domain.invariants import InvariantViolation
from domain.locks import EXCLUSIVE_MODES
from domain.model import Grant, ObjectView
from domain.orphans import (
    FIRST_KEY,
    LAST_ID,
    NO_RECORD,
    Orphan,
    OrphanQuery,
    OrphansPage,
    ProviderObject,
    ProviderObjectKey,
)
from domain.paths import kind_of
from domain.ports import Inventory

REFUSED_BY_PROVIDER = "RefusedByProvider"


Comparison = tuple[ProviderObject, ObjectView | None, str]

OPEN_WALKS = 50  # providers whose pages are in memory at once
MAX_FINDINGS = 5_000  # of one family
PROVIDER_FAILURES = (ProviderError, Superseded, TimeoutError)


class ProviderListing(ABC):
    """What lives at the providers of one family, and how its records are compared with that."""

    family: str
    kinds: Sequence[str]  # of the records that stand for things there
    absence: str = "there is no such object outside"  # of a record without a thing
    instead: str = ""  # why no record can adopt an orphan, and what to do; empty: one can, by `adopt`

    @abstractmethod
    def list_providers(self, prefix: str) -> AsyncIterator[str]:
        """Yields the providers that may have something at or below a path, in the order of their names."""

    @abstractmethod
    async def read_provider_page(
        self, provider: str, prefix: str, after: ProviderObjectKey
    ) -> Sequence[ProviderObject]:
        """Returns the next things at or below a path, in the order of their keys; an empty page is the end."""

    def provider_of_record(self, record: ObjectView) -> str:
        """Returns the provider that should have the thing of a record; empty if it may be any."""
        return record.placement

    def why_orphaned(self, thing: ProviderObject, record: ObjectView | None) -> str:
        """Returns what the record at its path is, if the thing is not the record's own; else an empty text."""
        return "" if record else NO_RECORD

    def describe_difference(self, thing: ProviderObject, record: ObjectView) -> str:
        """Returns how a thing differs from its own record; else an empty text."""
        return ""

    def must_have_thing(self, record: ObjectView) -> bool:
        """Tells whether the provider must have a thing for this record."""
        return False

    def removal_target(self, thing: ProviderObject) -> str:
        """Returns the path of the object whose action removes an orphan."""
        return thing.path


class OrphanRemovingListing(ProviderListing):
    """A listing whose orphans are removed by the kernel's workflow, with one order or a few."""

    removes: Sequence[str]  # the kinds of targets

    @abstractmethod
    async def remove_orphan(self, grant: Grant, right: OrderFence) -> str:
        """Removes what lives at the target's path. Returns what was done, or raises a ProviderError; repeatable."""


class OrphanActivities:
    """Lists orphans of all families, and removes one at its provider."""

    def __init__(self, inventory: Inventory, listings: Iterable[ProviderListing], fence: Fence) -> None:
        self._inventory = inventory
        self._listings = sorted(listings, key=lambda listing: listing.family)
        self._fence = fence
        self._removing = {
            kind: listing
            for listing in self._listings
            if isinstance(listing, OrphanRemovingListing)
            for kind in listing.removes
        }

    @activity.defn(name=wire.READ_ORPHANS)
    async def read_orphans(self, query: OrphanQuery) -> OrphansPage:
        """Returns a page of orphans, without those on which an action is under way."""
        async with send_heartbeats():
            last = await self._inventory.read_last_epoch()
            held = [hold.path for hold in await self._inventory.list_locks("") if hold.mode in EXCLUSIVE_MODES]
            found, silent, more = await self._find_orphans(query)
            busy = BusyPaths([*held, *await self._inventory.list_paths_begun_since(last)])
        orphans = [orphan for orphan in found if not busy.is_busy(orphan.path)]
        return OrphansPage(orphans=orphans, silent=silent, after=found[-1] if more else None)

    @activity.defn
    async def remove_orphan(self, grant: Grant) -> str:
        """Removes what lives at the path of an action. Fails for good if the provider refuses."""
        async with self._fence.right_to_order(grant.path, grant.epoch) as right:
            try:
                return await self._removing[kind_of(grant.path)].remove_orphan(grant, right)
            except ProviderError as error:
                raise ApplicationError(format_one_line(error), type=REFUSED_BY_PROVIDER, non_retryable=True) from error

    async def find_violations(self, prefix: str) -> tuple[list[InvariantViolation], int]:
        """I3 and I7 for every family: what is wrong at or below a path, and how much lives there.

        However much that is, a page of each provider and of the records is in memory.
        """
        findings, size = [], 0
        for listing in self._listings_for(prefix):
            asked: set[str] = set()
            mine: list[InvariantViolation] = []
            more = 0
            async for finding, things in self._compare_family(listing, prefix, asked):
                size += things
                if finding and len(mine) < MAX_FINDINGS:
                    mine.append(finding)
                elif finding:
                    more += 1
            if more:
                mine.append(
                    InvariantViolation("I3", prefix, f"{format_count(more, 'more finding')} about {listing.family}")
                )
            findings += mine
        return findings, size

    async def _compare_family(
        self, listing: ProviderListing, prefix: str, asked: set[str]
    ) -> AsyncIterator[tuple[InvariantViolation | None, int]]:
        """Yields what is wrong, and how many things were looked at since. `asked` gets the providers that answered."""
        async for provider in listing.list_providers(prefix):
            try:
                async for page in iterate_provider_pages(listing, provider, prefix):
                    yield None, len(page)
                    for thing, record, word in await compare_with_records(self._inventory, listing, page):
                        if word:
                            yield InvariantViolation("I3", thing.path, _describe_orphan(thing, word)), 0
                        elif record and (difference := listing.describe_difference(thing, record)):
                            yield InvariantViolation("I7", thing.path, difference), 0
                asked.add(provider)
            except PROVIDER_FAILURES as error:
                yield InvariantViolation("I3", provider, f"could not be asked: {failure_text(error)}"), 0
        for kind in listing.kinds:
            async for finding in self._find_missing(listing, kind, prefix, asked):
                yield finding, 0

    async def _find_missing(
        self, listing: ProviderListing, kind: str, prefix: str, asked: set[str]
    ) -> AsyncIterator[InvariantViolation]:
        """Records without a thing, unless nobody could be asked for it. Both sides are walked in the order of paths."""
        walks: dict[str, _ProviderCursor] = {}
        before = ""
        async for view in list_all_objects(self._inventory, kind, prefix):
            wanted = listing.provider_of_record(view)
            providers = [wanted] if wanted else sorted(asked)
            if providers and asked.issuperset(providers) and listing.must_have_thing(view):
                try:
                    there = False
                    for provider in providers:
                        if provider not in walks:
                            walks[provider] = _ProviderCursor(listing, provider, prefix, before)
                        there = there or await walks[provider].has_own_thing(view)
                    if not there:
                        yield InvariantViolation("I3", view.path, f"is {view.status}, but {listing.absence}")
                except PROVIDER_FAILURES as error:
                    asked.difference_update(providers)
                    name = wanted or listing.family
                    yield InvariantViolation("I3", name, f"could not be asked: {failure_text(error)}")
                while len(walks) > OPEN_WALKS:
                    del walks[next(iter(walks))]
            before = view.path

    async def _find_orphans(self, query: OrphanQuery) -> tuple[list[Orphan], list[str], bool]:
        """Orphans up to the limit, the providers that did not answer, and whether there may be more."""
        found: list[Orphan] = []
        silent: list[str] = []
        for listing in self._listings_for(query.path):
            if listing.family < query.after.family:
                continue
            after = query.after.sort_key if listing.family == query.after.family else FIRST_KEY
            async for provider in listing.list_providers(query.path):
                if provider < after[0]:
                    continue
                try:
                    async for page in iterate_provider_pages(
                        listing, provider, query.path, after if provider == after[0] else FIRST_KEY
                    ):
                        compared = await compare_with_records(self._inventory, listing, page)
                        found += [_make_orphan(listing, thing, word) for thing, _, word in compared if word]
                        if len(found) >= query.limit:
                            return found[: query.limit], silent, True
                except PROVIDER_FAILURES as error:
                    silent.append(f"{provider}: {failure_text(error)}")
        return found, silent, False

    def _listings_for(self, prefix: str) -> list[ProviderListing]:
        """Returns the listings that may know something at or below a path."""
        root = prefix.partition(":")[0]
        return [
            listing
            for listing in self._listings
            if not root or any(registry.find_kind(kind).scope[0] == root for kind in listing.kinds)
        ]


class _ProviderCursor:
    """Walks along the things of one provider in the order of paths, with one page in memory."""

    def __init__(self, listing: ProviderListing, provider: str, prefix: str, passed: str) -> None:
        self._listing, self._provider, self._prefix = listing, provider, prefix
        self._passed = passed  # things at or before this path are not asked for any more
        self._page: deque[ProviderObject] = deque()
        self._last = FIRST_KEY
        self._at_end = False

    async def has_own_thing(self, record: ObjectView) -> bool:
        """Is there a thing that is the record's own? Records must come in the order of paths."""
        own = False
        while True:
            while self._page and self._page[0].path <= record.path:
                thing = self._page.popleft()
                own = own or (thing.path == record.path and not self._listing.why_orphaned(thing, record))
            if self._page or self._at_end:
                break
            skipped = (self._provider, self._passed, LAST_ID) if self._passed else FIRST_KEY
            page = await self._listing.read_provider_page(self._provider, self._prefix, max(self._last, skipped))
            self._at_end = not page
            self._page.extend(page)
            self._last = page[-1].sort_key if page else self._last
        self._passed = record.path
        return own


async def iterate_provider_pages(
    listing: ProviderListing, provider: str, prefix: str, after: ProviderObjectKey = FIRST_KEY
) -> AsyncIterator[Sequence[ProviderObject]]:
    """Yields the pages of what lives at one provider after a key."""
    while page := await listing.read_provider_page(provider, prefix, after):
        yield page
        after = page[-1].sort_key


async def compare_with_records(
    inventory: Inventory, listing: ProviderListing, things: Sequence[ProviderObject]
) -> list[Comparison]:
    """Returns each thing with the record of its path and, if it is an orphan, a text that says why the record is not
    its own.
    """
    records = await inventory.read_objects([thing.path for thing in things])
    pairs = ((thing, records.get(thing.path)) for thing in things)
    return [(thing, record, listing.why_orphaned(thing, record)) for thing, record in pairs]


def failure_text(error: Exception) -> str:
    """Returns a provider's failure in a line; a timeout has no text of its own."""
    return format_one_line(str(error) or "no answer in time", 200)


def _make_orphan(listing: ProviderListing, thing: ProviderObject, word: str) -> Orphan:
    about = {"record": word, "target": listing.removal_target(thing), "instead": listing.instead}
    return Orphan(family=listing.family, **asdict(thing), **about)


def _describe_orphan(thing: ProviderObject, word: str) -> str:
    """Returns an orphan as `verify` names it."""
    age = f" since {thing.since:%Y-%m-%d %H:%M:%SZ}" if thing.since else ""
    order = f", ordered as {thing.token}" if thing.token else ""
    record = "no record knows it" if word == NO_RECORD else f"its record is {word}"
    return f"is {thing.state} in {thing.provider} as {thing.id}{age}{order}, but {record}; see: starter orphans list"
