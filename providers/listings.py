"""Pages of a listing whose source has no order: it is read once, and the pages that follow come from memory.

And the parts of a long list of values, for a source that takes only some in one call.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from domain.ports import VMS_PER_PAGE, VmFacts, VmKey

VMS_READ_AHEAD = 10_000  # VMs that one reading keeps; with more, the source is read again
FRESH_SECONDS = 30.0  # for which a reading is used
MAX_READINGS = 4  # readings that are kept; the oldest go first

ReadNext = Callable[[int], Awaitable[list[VmFacts]]]  # (most) -> the VMs that come next, in the order of their keys


@dataclass(slots=True)
class _BufferedListing:
    """What follows a page. `whole`: there is nothing after it."""

    at: float
    vms: list[VmFacts]
    whole: bool


def split_sorted(size: int, values: Iterable[str]) -> Iterator[list[str]]:
    """Splits different values into parts of a call each, in their order: the same values make the same calls."""
    rest = iter(sorted(set(values)))
    while part := list(islice(rest, size)):
        yield part


class VmListingCache:
    """The listings that are being read, by prefix and the last key that was returned."""

    def __init__(self) -> None:
        self._readings: dict[tuple[str, VmKey], _BufferedListing] = {}

    async def take_page(self, prefix: str, after: VmKey, read_next: ReadNext) -> list[VmFacts]:
        """Returns the page after a key: the rest of the reading that ended there, or of a new one."""
        oldest = time.monotonic() - FRESH_SECONDS
        self._readings = {key: reading for key, reading in self._readings.items() if reading.at >= oldest}
        reading = self._readings.pop((prefix, after), None)
        if reading is None:
            began = time.monotonic()
            vms = await read_next(VMS_READ_AHEAD)
            reading = _BufferedListing(began, vms, whole=len(vms) < VMS_READ_AHEAD)
        page, rest = reading.vms[:VMS_PER_PAGE], reading.vms[VMS_PER_PAGE:]
        if page and (rest or reading.whole):
            self._readings[prefix, page[-1].key] = _BufferedListing(reading.at, rest, reading.whole)
            while len(self._readings) > MAX_READINGS:
                self._readings.pop(min(self._readings, key=lambda key: self._readings[key].at))
        return page
