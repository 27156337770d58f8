"""Draws a running action on a terminal: the object, each place with its progress, and every failure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from domain import registry
from domain.errors import format_count
from domain.model import ObjectView, PlacementCounts, TargetFailure, TreeView
from domain.paths import name_of, short_path
from starter.terminal import escape_controls

if TYPE_CHECKING:
    from rich.text import Text

WIDE_COLUMNS = 70  # columns that bars need
BAR_COLUMNS = 12
MIN_PLACES = 2  # seconds before a remaining time is shown


def draw_tree(
    seen: TreeView, targets: int, seconds: float, step: str, size: tuple[int, int], plain: bool = False
) -> Text:
    """Draws the tree, cut to the terminal's size. `plain` uses ASCII only."""
    from rich.text import Text

    width, height = size
    lines = [Text(escape_controls(line), "bold") for line in _head_lines(seen, targets, seconds, width)]
    if step:
        lines.append(Text(escape_controls(f"  {step}"), "cyan"))
    room = max(height - len(lines) - 1, 3)
    troubles = seen.troubles[: max(room // 3, 1)]
    places = [place for place in seen.places if place.placement]
    shown = places[: max(room - len(troubles) - 1, 1)]
    lines += [_place_line(seen, counts, max(len(one.placement) for one in shown), width, plain) for counts in shown]
    if len(shown) < len(places):
        ready = sum(not _count_transitional(seen.object, place.counts) for place in places[len(shown) :])
        lines.append(Text(f"  and {format_count(len(places) - len(shown), 'more place')}, {ready} of them done", "dim"))
    lines += [_error_line(trouble) for trouble in troubles]
    for line in lines:
        line.truncate(width - 1, overflow="crop" if plain else "ellipsis")
    return Text("\n").join(lines)


def count_done_targets(view: ObjectView, counts: Mapping[str, int], targets: int) -> tuple[int, int]:
    """Returns how many targets have left their transitional status, and how many there are; (0, 0) without targets."""
    busy = _count_transitional(view, counts)
    targets = targets or (sum(counts.values()) if busy else 0)  # later additions
    return max(targets - busy, 0), targets


def _head_lines(seen: TreeView, targets: int, seconds: float, width: int) -> list[str]:
    """Returns name and progress, in one line or two, as the width allows."""
    counts = sum((Counter(place.counts) for place in seen.places), Counter[str]())
    ready, total = count_done_targets(seen.object, counts, targets)
    name = f"{short_path(seen.object.path)}  {seen.object.status}"
    far = "  ".join(filter(None, (f"{ready}/{total} done" if total else "", _remaining_time(ready, total, seconds))))
    if len(name) + len(far) + 2 < width or not far:
        return [f"{name}  {far}".rstrip()]
    return [name, f"  {far}"]


def _remaining_time(ready: int, total: int, seconds: float) -> str:
    """Returns the estimated remaining time, at the rate so far."""
    if seconds < MIN_PLACES or not 0 < ready < total:
        return ""
    left = seconds * (total - ready) / ready
    return f"about {left:.0f} s left" if left < 120 else f"about {left / 60:.0f} min left"


def _place_line(seen: TreeView, place: PlacementCounts, longest: int, width: int, plain: bool) -> Text:
    from rich.text import Text

    total = sum(place.counts.values())
    ready = total - _count_transitional(seen.object, place.counts)
    counted = ", ".join(f"{number} {status}" for status, number in sorted(place.counts.items()))
    line = Text("  ")
    line.append(escape_controls(place.placement).ljust(longest if width >= WIDE_COLUMNS else 0))
    if width >= WIDE_COLUMNS:
        full = BAR_COLUMNS * ready // total if total else 0
        line.append("  ").append(("#" if plain else "█") * full, "green")
        line.append(("-" if plain else "░") * (BAR_COLUMNS - full), "dim")
    line.append(f"  {ready}/{total}", "green" if ready == total else "")
    return line.append(f"  {escape_controls(counted)}", "dim")


def _error_line(trouble: TargetFailure) -> Text:
    from rich.text import Text

    return Text(escape_controls(f"  ! {name_of(trouble.path)} is {trouble.status}: {trouble.error}"), "red")


def _count_transitional(view: ObjectView, counts: Mapping[str, int]) -> int:
    """Returns how many members of a group are on their way, of those that are counted by status."""
    member = registry.find_kind(view.kind).member
    moving = registry.find_kind(member).table.transitional_statuses if member else ()
    return sum(number for status, number in counts.items() if status in moving)
