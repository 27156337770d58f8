"""The live view of a running action on a terminal: a tree, at any width, with and without colours."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import struct
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from domain.model import ObjectView, PlacementCounts, TargetFailure, TreeView
from starter import tree
from tests.cases import every_case
from tests.patience import PATIENCE
from tests.test_cli.shell import Cli, Clouds, ended

NOW = datetime(2026, 11, 15, tzinfo=UTC)
COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-9][0-9;]*m")


def seen(*places: tuple[str, dict[str, int]], troubles: int = 0) -> TreeView:
    view = ObjectView(
        path="ns:default:mci:web",
        kind="mci",
        status="Partial-Suspending:4 (R:0/6)",
        phase="Running",
        epoch=1,
        created_at=NOW,
        changed_at=NOW,
    )
    wrong = [
        TargetFailure(path=f"{view.path}:vm:front-{n}", status="Running", error="under maintenance", at=NOW)
        for n in range(troubles)
    ]
    return TreeView(
        object=view, places=[PlacementCounts(placement=name, counts=counts) for name, counts in places], troubles=wrong
    )


HALF = seen(("aws/eu-central-1", {"Suspended": 2}), ("gcp/europe-west3", {"Suspending": 4}), troubles=1)


def test_a_wide_terminal_shows_places_bars_time_left_and_troubles() -> None:
    lines = tree.draw_tree(HALF, 6, 10, "", (100, 40)).plain.splitlines()
    assert lines == [
        "default/web  Partial-Suspending:4 (R:0/6)  2/6 done  about 20 s left",
        "  aws/eu-central-1  ████████████  2/2  2 Suspended",
        "  gcp/europe-west3  ░░░░░░░░░░░░  0/4  4 Suspending",
        "  ! front-0 is Running: under maintenance",
    ]


def test_where_only_ascii_can_be_shown_bars_are_ascii() -> None:
    assert tree.draw_tree(HALF, 6, 10, "", (100, 40), plain=True).plain.isascii()


@every_case("width", [20, 40, 69, 70, 200])
@every_case("height", [5, 10, 50])
def test_the_tree_never_outgrows_the_terminal(width: int, height: int) -> None:
    many = [(f"aws/region-with-a-long-name-{n}", {"Suspending": n + 1, "Suspended": 3}) for n in range(100)]
    shown = tree.draw_tree(seen(*many, troubles=10), 6, 10, "", (width, height)).plain.splitlines()
    assert max(map(len, shown)) < width
    assert len(shown) <= height
    assert any("!" in line for line in shown), "trouble has room, however many places there are"
    assert any(" more places, 0 of them d" in line for line in shown) or width < 40


def test_nobody_says_how_long_it_takes_before_it_can_be_known() -> None:
    assert "left" not in tree.draw_tree(HALF, 6, 1, "", (100, 40)).plain
    untouched = seen(("aws/eu-central-1", {"Suspending": 6}))
    assert "left" not in tree.draw_tree(untouched, 6, 60, "", (100, 40)).plain
    assert "about 17 min left" in tree.draw_tree(HALF, 6, 500, "", (100, 40)).plain


def test_on_a_narrow_terminal_how_far_it_is_goes_below() -> None:
    wide, narrow = (tree.draw_tree(HALF, 6, 500, "", (columns, 40)).plain.splitlines() for columns in (100, 50))
    assert narrow[1].strip() == "2/6 done  about 17 min left"
    assert wide[0] == "  ".join(line.strip() for line in narrow[:2])


def test_what_a_cloud_says_cannot_move_the_cursor() -> None:
    rude = seen(("aws/r0", {"Running": 1}))
    trouble = TargetFailure(path="ns:default:mci:web:vm:a-1", status="Running", error="\x1b[2Jboo", at=NOW)
    assert "\x1b" not in tree.draw_tree(rude.model_copy(update={"troubles": [trouble]}), 1, 0, "", (80, 20)).plain


@contextmanager
def terminal(columns: int) -> Iterator[tuple[int, int]]:
    """Both ends of a terminal of so many columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    try:
        yield ours, theirs
    finally:
        os.close(ours)


def _plain_environment() -> dict[str, str]:
    """Without what would overrule the terminal: a test runner may have set it."""
    overruling = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
    return {name: value for name, value in os.environ.items() if name not in overruling}


def plain(sent: str) -> str:
    """What a terminal shows, without its colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", sent)


async def on_terminal(clouds: Clouds, awaited: str, columns: int, *words: str, **environment: str) -> tuple[int, str]:
    """A command with its stderr on a terminal: its exit code, and all that the terminal was sent.

    The clouds relent as soon as the terminal shows what is awaited.
    """
    sent = bytearray()
    with terminal(columns) as (ours, theirs):
        loop = asyncio.get_running_loop()
        loop.add_reader(ours, lambda: sent.extend(os.read(ours, 65536)))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "starter", *words),
            stdout=asyncio.subprocess.PIPE,
            stderr=theirs,
            stdin=asyncio.subprocess.DEVNULL,
            env={**_plain_environment(), "TERM": "xterm-256color", **environment},
        )
        while awaited not in plain(sent.decode(errors="replace")) and process.returncode is None:
            await asyncio.sleep(0.02)
        await clouds.relent()
        await process.communicate()
        await asyncio.sleep(0)  # what is left in the terminal
        loop.remove_reader(ours)
        os.close(theirs)
    return process.returncode or 0, sent.decode(errors="replace")


async def test_a_terminal_shows_the_places_while_the_action_runs(mci: str, ns: str, clouds: Clouds) -> None:
    await clouds.stall(ns, "aws")
    code, shown = await on_terminal(clouds, "0/3  3 Suspending", 100, "mci", "suspend", mci)
    assert code == 0, shown
    assert "aws/eu-central-1" in shown
    assert "0/3  3 Suspending" in plain(shown)
    assert COLOUR.search(shown)


async def test_a_narrow_terminal_without_colours_is_served_as_well(mci: str, ns: str, clouds: Clouds) -> None:
    await clouds.stall(ns, "aws")
    code, shown = await on_terminal(clouds, "aws/eu-central-1  0/3", 40, "mci", "suspend", mci, NO_COLOR="1")
    assert code == 0, shown
    assert "aws/eu-central-1  0/3" in shown
    assert not COLOUR.search(shown)


async def test_a_pipe_gets_plain_lines(mci: str, cli: Cli) -> None:
    ran = await cli.process("mci suspend", mci)
    assert ran.code == 0
    assert "\x1b" not in ran.err + ran.out
    assert "█" not in ran.err


@pytest.mark.parametrize("noun", ["mci", "vm"])
async def test_a_status_is_watched_until_the_object_is_gone(noun: str, mci: str, cli: Cli) -> None:
    path = mci if noun == "mci" else f"{mci}/front-1"
    watching = await cli.start(f"{noun} status {path} --watch")
    assert watching.stdout
    async with asyncio.timeout(PATIENCE):
        while b"Running" not in await watching.stdout.readline():
            pass
        assert (await cli("mci delete", mci, "--yes")).code == 0
        ran = await ended(watching)
    assert ran.code == 6
    assert "there is no such" in ran.err
