"""Draws a running action on a terminal: the object, each place with its progress, and every failure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from domain import registry
from domain.model import PlaceView, TargetFailure, TreeView
from domain.paths import name_of, short
from starter.terminal import clean

if TYPE_CHECKING:
    from rich.text import Text

WIDE = 70  # columns that bars need
BAR = 12
FEWEST = 2  # seconds before a remaining time is shown


def draw(seen: TreeView, targets: int, seconds: float, step: str, size: tuple[int, int], plain: bool = False) -> Text:
    """Draws the tree, cut to the terminal's size. `plain` uses ASCII only."""
    from rich.text import Text

    width, height = size
    lines = [Text(clean(line), "bold") for line in _head(seen, targets, seconds, width)]
    if step:
        lines.append(Text(clean(f"  {step}"), "cyan"))
    room = max(height - len(lines) - 1, 3)
    troubles = seen.troubles[: max(room // 3, 1)]
    places = [each for each in seen.places if each.placement]
    shown = places[: max(room - len(troubles) - 1, 1)]
    lines += [_place(seen, each, max(len(one.placement) for one in shown), width, plain) for each in shown]
    if len(shown) < len(places):
        ready = sum(not _busy(seen, each) for each in places[len(shown) :])
        lines.append(Text(f"  and {len(places) - len(shown)} more places, {ready} of them done", "dim"))
    lines += [_trouble(each) for each in troubles]
    for line in lines:
        line.truncate(width - 1, overflow="crop" if plain else "ellipsis")
    return Text("\n").join(lines)


def count_done(seen: TreeView, targets: int) -> tuple[int, int]:
    """Returns how many targets have left their transitional status, and how many there are; (0, 0) without targets."""
    busy = sum(_busy(seen, each) for each in seen.places)
    targets = targets or (sum(sum(each.counts.values()) for each in seen.places) if busy else 0)  # later additions
    return max(targets - busy, 0), targets


def _head(seen: TreeView, targets: int, seconds: float, width: int) -> list[str]:
    """Returns name and progress, in one line or two, as the width allows."""
    ready, total = count_done(seen, targets)
    name = f"{short(seen.object.path)}  {seen.object.status}"
    far = "  ".join(filter(None, (f"{ready}/{total} done" if total else "", _left(ready, total, seconds))))
    if len(name) + len(far) + 2 < width or not far:
        return [f"{name}  {far}".rstrip()]
    return [name, f"  {far}"]


def _left(ready: int, total: int, seconds: float) -> str:
    """Returns the estimated remaining time, at the rate so far."""
    if seconds < FEWEST or not 0 < ready < total:
        return ""
    left = seconds * (total - ready) / ready
    return f"about {left:.0f} s left" if left < 120 else f"about {left / 60:.0f} min left"


def _place(seen: TreeView, place: PlaceView, longest: int, width: int, plain: bool) -> Text:
    from rich.text import Text

    total = sum(place.counts.values())
    ready = total - _busy(seen, place)
    counted = ", ".join(f"{number} {status}" for status, number in sorted(place.counts.items()))
    line = Text("  ")
    line.append(clean(place.placement).ljust(longest if width >= WIDE else 0))
    if width >= WIDE:
        full = BAR * ready // total if total else 0
        line.append("  ").append(("#" if plain else "█") * full, "green")
        line.append(("-" if plain else "░") * (BAR - full), "dim")
    line.append(f"  {ready}/{total}", "green" if ready == total else "")
    return line.append(f"  {clean(counted)}", "dim")


def _trouble(trouble: TargetFailure) -> Text:
    from rich.text import Text

    return Text(clean(f"  ! {name_of(trouble.path)} is {trouble.status}: {trouble.error}"), "red")


def _busy(seen: TreeView, place: PlaceView) -> int:
    member = registry.kind(seen.object.kind).member
    moving = registry.kind(member).table.transitional if member else ()
    return sum(number for status, number in place.counts.items() if status in moving)
