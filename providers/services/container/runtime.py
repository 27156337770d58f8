"""Calls runc, each time with a deadline, and asks it which containers there are."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

from domain.errors import Unavailable
from domain.services.definition import HealthCheck
from providers.services.container.rules import ContainerRules


class ContainerRuntime:
    """The containers of one folder, whose names are the tokens of their instances."""

    def __init__(self, rules: ContainerRules, root: Path) -> None:
        self._rules = rules
        self.root = root

    async def read_running_pid(self, token: str) -> int:
        """Returns the pid of a container that runs, or 0."""
        if not (self.root / token).exists():
            return 0
        code, text = await self._call_runc("state", token)
        try:
            state: dict[str, Any] = json.loads(text) if code == 0 else {}
        except ValueError as error:
            raise Unavailable("runc state gave no clear answer") from error
        return int(state["pid"]) if state.get("status") in ("running", "paused") else 0

    async def delete(self, token: str) -> None:
        """Ends and forgets a container, also one that is half made. There may be none."""
        if (self.root / token).exists():
            await self._call_runc("delete", "--force", token)

    async def check_health_by_command(
        self, token: str, health: HealthCheck, process: dict[str, Any], file: Path
    ) -> str:
        """Checks an instance's health by a command in its container."""
        words = ("exec", "--process", "/dev/stdin", "--pid-file", str(file), token)
        try:
            code, _ = await self._call_runc(*words, given=json.dumps(process).encode(), seconds=health.timeout)
        except Unavailable:
            _kill_pid_in(file)  # runc was ended, and the command goes on without it
            return f"no answer within {health.timeout:g} s"
        return "" if code == 0 else f"the check ended with exit code {code}"

    async def _call_runc(self, *words: str, given: bytes = b"", seconds: float = 0) -> tuple[int, str]:
        """Calls runc. Returns its exit code and output; raises Unavailable if it cannot run or takes too long."""
        seconds = seconds or self._rules.seconds
        try:
            process = await asyncio.create_subprocess_exec(
                *(self._rules.runc, "--root", str(self.root), *words),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            raise Unavailable(f"{self._rules.runc} cannot run: {error.strerror}") from error
        try:
            async with asyncio.timeout(seconds):
                output, _ = await process.communicate(given)
        except TimeoutError as error:
            raise Unavailable(f"runc {words[0]} gave no answer within {seconds:g} s") from error
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        return process.returncode or 0, output.decode(errors="replace")


def _kill_pid_in(file: Path) -> None:
    with suppress(OSError, ValueError):
        os.kill(int(file.read_text()), signal.SIGKILL)
        file.unlink()
