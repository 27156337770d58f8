"""Runs commands as a user does: in this process where that is quick, or in processes of their own."""

from __future__ import annotations

import asyncio
import contextlib
import io
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from temporalio.client import WorkflowExecutionStatus

from client.actions import ActionClient
from domain import wire
from domain.faults import Fault, FaultKind, FaultScript
from starter.command import run_command
from tests.patience import PATIENCE

EXAMPLES = Path(__file__).parents[2] / "examples"


@dataclass(frozen=True)
class Ran:
    """What became of a command."""

    code: int
    out: str
    err: str


class Cli:
    """`await cli("mci suspend", path)` runs a command here; `start` runs it as a process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    async def __call__(self, words: str, *more: str, stdin: str = "") -> Ran:
        out, err = io.StringIO(), io.StringIO()
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = await run_command([*words.split(), *more])
        return Ran(code, out.getvalue(), err.getvalue())

    async def start(self, words: str, *more: str) -> asyncio.subprocess.Process:
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a run in the background; commands inherit it
            signal.signal(signal.SIGINT, signal.default_int_handler)
        pipe = asyncio.subprocess.PIPE
        command = (sys.executable, "-m", "starter", *words.split(), *more)
        return await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)

    async def process(self, words: str, *more: str) -> Ran:
        return await ended(await self.start(words, *more))


async def heard(process: asyncio.subprocess.Process, words: str) -> str:
    """The first line on stderr that has these words in it."""
    assert process.stderr
    async with asyncio.timeout(PATIENCE):
        async for line in process.stderr:
            if words in (text := line.decode()):
                return text
    raise AssertionError(f"it ended without saying {words!r}")


async def ended(process: asyncio.subprocess.Process) -> Ran:
    out, err = await process.communicate()
    return Ran(process.returncode or 0, out.decode(), err.decode())


def assert_told(ran: Ran, code: int, words: str) -> None:
    """What, why, what to do next; no traceback, and nothing on stdout that could be taken for data."""
    assert (ran.code, ran.out) == (code, ""), ran
    assert words in ran.err
    assert [line.split(":")[0].strip() for line in ran.err.splitlines()] == ["error", "why", "hint"]


async def under_way(client: ActionClient, path: str) -> None:
    """Until the newest action on a path is a running one."""
    async with asyncio.timeout(PATIENCE):
        while not (newest := await client.newest_run(path)) or newest.status is not WorkflowExecutionStatus.RUNNING:
            await asyncio.sleep(0.05)


@dataclass
class Clouds:
    """The simulated clouds, which can be made to keep an action waiting."""

    asking: ActionClient

    async def stall(self, ns: str, csp: str = "*", verb: str = "*") -> None:
        """Actions in this namespace wait until `relent`; or only those for one cloud, or for calls of one verb."""
        await self._set([Fault(kind=FaultKind.THROTTLE, vm=f"ns:{ns}:*", csp=csp, verb=verb, retry_after=0.1)])

    async def fail(self, vm: str) -> None:
        await self._set([Fault(kind=FaultKind.FAIL, vm=vm, message="out of order")])

    async def relent(self) -> None:
        await self._set([])

    async def _set(self, faults: list[Fault]) -> None:
        await self.asking.run_query(wire.CLOUD_FAULTS, FaultScript(faults=faults, replace=True), FaultScript)


State = tuple[list[str], int]
