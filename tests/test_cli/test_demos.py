"""The demo of every family runs to its end and leaves no action open."""

from __future__ import annotations

from datetime import timedelta
from importlib import import_module

import pytest

from client.actions import ActionClient
from starter.errors import ExitCode
from tests.patience import PATIENCE
from tests.registry import NAMES
from tests.test_cli.shell import Cli

EVERY_DEMO = ("What to try next",)
TOLD = {  # and what else a family's demo says
    "machines": ("migrate", "DESTROYED", "refused"),
    "leases": ("refused", "a host fails", "TERMINATED"),
    "systems": ("dropped: 0", "degraded", "stable", "refused"),
}
LEASES_LAST = (6, 30, 150)  # seconds: if a lease was over before its story was told, the machine needs a longer one

ELSEWHERE = {"mci": "tests/test_cli/test_running.py", "edge": "tests/test_edge/test_commands.py"}


@pytest.mark.parametrize("family", [name for name in NAMES if name not in ELSEWHERE])
async def test_a_demo_tells_its_story(
    cli: Cli, asking: ActionClient, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("leases", "systems"):
        monkeypatch.setattr(import_module(f"starter.{name}.demo"), "DEMO_TIMEOUT", 2 * PATIENCE)
    for lasts in LEASES_LAST:
        monkeypatch.setattr(import_module("starter.leases.demo"), "FIRST_LEASE_LASTS", timedelta(seconds=lasts))
        ran = await cli(f"demo {family}")
        if ran.code == ExitCode.DONE or family != "leases":
            break
    assert ran.code == ExitCode.DONE, ran.out + ran.err
    assert [words for words in (*EVERY_DEMO, *TOLD.get(family, ())) if words not in ran.out] == []
