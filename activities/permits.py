"""Rate limits of one worker process, over all its activities: regions of a cloud at once, VMs of a region at once.

Everything here waits in lines, first come first served. Not re-entrant: who holds a region must not enter it again.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Mapping
from typing import Generic, TypeVar

from domain.limits import Caps

Wish = TypeVar("Wish")


class Permits:
    """Caps per cloud; a cloud without caps of its own has those of `other`. `share` is this process's part of them."""

    def __init__(self, caps: Mapping[str, Caps], share: tuple[int, int] = (1, 1)) -> None:
        self._caps = {csp: whole.share(*share) for csp, whole in caps.items()}
        self._regions: dict[str, _Regions] = {}
        self._vms: dict[tuple[str, str], _Slots] = {}

    def vm_cap(self, csp: str) -> int:
        """VMs of one region that this process may work on at once."""
        return self._caps_of(csp).vms

    def region(self, csp: str, region: str) -> Permit[str]:
        """Work in a region. A region that is active already is entered freely, unless others wait in line."""
        line = self._regions.get(csp)
        if line is None:
            line = self._regions[csp] = _Regions(self._caps_of(csp).regions)
        return Permit(line, region)

    def vms(self, csp: str, region: str, n: int = 1) -> Permit[int]:
        """Work on `n` VMs of a region at once."""
        line = self._vms.get((csp, region))
        if line is None:
            line = self._vms[csp, region] = _Slots(self.vm_cap(csp))
        if not 1 <= n <= line.cap:
            raise ValueError(f"{n} VMs at once in {csp}/{region}: the cap of this process is {line.cap}")
        return Permit(line, n)

    def in_use(self) -> dict[str, int]:
        """VM slots taken now, per cloud/region; empty at rest."""
        return {f"{csp}/{region}": line.used for (csp, region), line in self._vms.items() if line.used}

    def _caps_of(self, csp: str) -> Caps:
        return self._caps.get(csp) or self._caps["other"]


class _Line(ABC, Generic[Wish]):
    """Whoever cannot be served at once waits, and nobody overtakes."""

    def __init__(self, cap: int) -> None:
        self.cap = cap
        self._waiting: deque[tuple[Wish, asyncio.Future[None]]] = deque()

    @abstractmethod
    def _fits(self, wish: Wish) -> bool: ...

    @abstractmethod
    def _take(self, wish: Wish) -> None: ...

    @abstractmethod
    def _give(self, wish: Wish) -> None: ...

    async def enter(self, wish: Wish) -> None:
        if not self._waiting and self._fits(wish):
            self._take(wish)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((wish, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # our turn came in the same moment: hand it on
                self._give(wish)
            self._serve()
            raise

    def leave(self, wish: Wish) -> None:
        self._give(wish)
        if self._waiting:
            self._serve()

    def _serve(self) -> None:
        """Serve the line from its head until somebody does not fit."""
        while self._waiting:
            wish, turn = self._waiting[0]
            if not turn.done():
                if not self._fits(wish):
                    return
                self._take(wish)
                turn.set_result(None)
            self._waiting.popleft()


class _Slots(_Line[int]):
    """A number of equal slots."""

    used = 0

    def _fits(self, wish: int) -> bool:
        return self.used + wish <= self.cap

    def _take(self, wish: int) -> None:
        self.used += wish

    def _give(self, wish: int) -> None:
        self.used -= wish


class _Regions(_Line[str]):
    """A number of different regions, each with any number of holders."""

    def __init__(self, cap: int) -> None:
        super().__init__(cap)
        self._active: Counter[str] = Counter()

    def _fits(self, wish: str) -> bool:
        return wish in self._active or len(self._active) < self.cap

    def _take(self, wish: str) -> None:
        self._active[wish] += 1

    def _give(self, wish: str) -> None:
        self._active[wish] -= 1
        if not self._active[wish]:
            del self._active[wish]


class Permit(Generic[Wish]):
    """`async with` it: holds what it asks for while the block runs."""

    __slots__ = ("_line", "_wish")

    def __init__(self, line: _Line[Wish], wish: Wish) -> None:
        self._line = line
        self._wish = wish

    async def __aenter__(self) -> None:
        await self._line.enter(self._wish)

    async def __aexit__(self, *_: object) -> None:
        self._line.leave(self._wish)
