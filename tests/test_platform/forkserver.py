"""Processes that run `starter`, or a worker, and need not load it: a process that has loaded everything forks itself.

Loading takes seconds of CPU, and some tests start a dozen workers. What is forked is a process of its own all the same:
it has its own threads, is killed by a signal, and ends with a code.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

STARTER = "starter.__main__"  # a module with a `main`; of another function: `module:function`


class Child:
    """A forked process. Its end is noticed by its parent, the nursery."""

    def __init__(self, forkserver: ForkServer, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._nursery = forkserver
        self._turn = asyncio.Lock()  # a process can be waited for by many, but asked for its code only once

    def send_signal(self, word: signal.Signals) -> None:
        os.kill(self.pid, word)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    async def poll(self) -> int | None:
        """Its code, if it has ended: nobody but its parent can tell."""
        if self.returncode is None and (code := (await self._nursery.tell({"poll": self.pid})).strip()):
            self.returncode = int(code)
        return self.returncode

    async def wait(self) -> int:
        if self.returncode is None:
            await _gone(self.pid)  # only then: whoever waits for one child must not keep the others waiting
        async with self._turn:
            if self.returncode is None:
                self.returncode = int(await self._nursery.tell({"wait": self.pid}))
        return self.returncode


async def _gone(pid: int) -> None:
    """Wait until a process has ended, also one that another process started."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    process = os.pidfd_open(pid)
    loop.add_reader(process, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(process)
        os.close(process)


class ForkServer:
    """Starts processes."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._turn = asyncio.Lock()

    @classmethod
    async def open(cls, *words: str) -> ForkServer:
        """`words`: to be seen in the command line of every process, for whoever tells processes by it."""
        pipe = asyncio.subprocess.PIPE
        return cls(
            await asyncio.create_subprocess_exec(sys.executable, "-m", __name__, *words, stdin=pipe, stdout=pipe)
        )

    async def start(
        self, words: list[str], environment: dict[str, str], log: Path | str, program: str = STARTER
    ) -> Child:
        order = {"start": words, "environment": environment, "log": str(log), "program": program}
        return Child(self, int(await self.tell(order)))

    async def tell(self, order: dict[str, Any]) -> str:
        """One order, one answer."""
        assert self._process.stdin
        assert self._process.stdout
        async with self._turn:
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            return (await self._process.stdout.readline()).decode()

    async def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        await self._process.wait()


def main() -> None:
    """Load everything, then fork as told. What is loaded stays: no child looks through it for garbage."""
    gc.disable()
    import store.migrate
    import workers.crm
    import workers.process
    from client import session as connecting
    from domain import registry
    from starter import app, command, session
    from tests.patience import PATIENCE

    connecting.CONNECT_SECONDS = PATIENCE  # a busy machine is no failure of the commands
    registry.load_families()
    app.build_cli_app()  # each `starter` would build it anew
    del store, workers, app, command, session
    gc.freeze()
    gc.enable()
    for line in sys.stdin:
        order = json.loads(line)
        answer: int | str
        if "wait" in order:
            answer = os.waitstatus_to_exitcode(os.waitpid(order["wait"], 0)[1])
        elif "poll" in order:
            pid, status = os.waitpid(order["poll"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else ""
        elif not (answer := os.fork()):
            _become(order)
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()


def _become(order: dict[str, Any]) -> None:
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.argv[1:] = order["start"]
    module, _, function = order["program"].partition(":")
    getattr(import_module(module), function or "main")()


if __name__ == "__main__":
    main()
