"""Counts every injected fault and its effect; the long run writes the table into docs/reliability.md."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from time import monotonic

import pytest

from tests.chaos.killing import MINUTES, WORLDS, Score, worlds
from tests.chaos.world import World
from tests.patience import PATIENCE

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
BLOCK = re.compile(r"(<!-- chaos -->\n).*?(<!-- /chaos -->)", re.DOTALL)
# Seconds of one test. Each of its waits ends before, and says what it waited for; there are up to five in a row.
LONG, SHORT = 60 * MINUTES + 5 * PATIENCE, 6 * PATIENCE
HEADINGS = ("fault", "times injected", "actions run", "lost", "doubled", "stuck")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A story is told several times in one test, and in the long run a test takes its share of the time: both may take
    longer than the timeout of all others.
    """
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(LONG if config.getoption("--chaos") else SHORT))


@pytest.fixture(scope="package")
async def places(tmp_path_factory: pytest.TempPathFactory, chaos: bool) -> AsyncIterator[list[World]]:
    """The worlds in which stories run: more of them in the long run."""
    async with worlds(tmp_path_factory.mktemp("worlds"), WORLDS if chaos else 2) as made:
        yield made


@pytest.fixture(scope="session")
def scores(chaos: bool, request: pytest.FixtureRequest) -> Iterator[list[Score]]:
    kept, began = list[Score](), monotonic()
    yield kept
    if chaos and not request.config.getoption("keyword"):
        lines = [HEADINGS, ["---"] * len(HEADINGS), *(score.row() for score in kept)]
        table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        table = f"{(monotonic() - began) / 60:.0f} minutes, with `RATCHET_CHAOS_MINUTES={MINUTES:g}`:\n\n{table}"
        PAGE.write_text(BLOCK.sub(lambda found: f"{found[1]}{table}\n{found[2]}", PAGE.read_text()))
