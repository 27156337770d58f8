"""Objects that actions are about just now: of these a comparison with a provider says nothing."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable


class BusyPaths:
    """Objects that actions are about, or were while we looked; above and below them nothing is sure."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = sorted(set(paths))
        self._known = frozenset(self._paths)

    def is_busy(self, path: str) -> bool:
        words = path.split(":")
        if any(":".join(words[:end]) in self._known for end in range(1, len(words) + 1)):
            return True
        at = bisect(self._paths, f"{path}:")
        return at < len(self._paths) and self._paths[at].startswith(f"{path}:")
