"""The real clients of the old systems, in an environment of their own: the dependency group `clients`, as locked."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.patience import PATIENCE

ROOT = Path(__file__).parents[2]
INSTALL_SECONDS = 600


class ClientsMissing(Exception):
    """The clients cannot be installed here; the text says why."""


@dataclass(frozen=True)
class ClientPrograms:
    """The folder of the installed clients, and the variables that they run with."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    async def run(self, program: str, *words: str, text: str = "") -> tuple[int, str, str]:
        """Runs one program to its end. Returns its code, what it printed, and its errors."""
        process = await asyncio.create_subprocess_exec(
            str(self.folder / program),
            *words,
            env={"PATH": os.environ["PATH"], "HOME": str(self.folder), **self.environment},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            out, err = await asyncio.wait_for(process.communicate(text.encode()), PATIENCE)
        finally:
            if process.returncode is None:
                process.kill()
        return process.returncode or 0, out.decode(), err.decode()


class ForkingClients:
    """Runs programs that are loaded already, each as a process of its own: `tests/clients/forking.py`."""

    def __init__(self, folder: Path, files: Path, process: asyncio.subprocess.Process) -> None:
        self._folder, self._files, self._process = folder, files, process

    @classmethod
    @asynccontextmanager
    async def open(cls, folder: Path, files: Path) -> AsyncIterator[ForkingClients]:
        """`files`: an empty folder for what the programs print."""
        pipe = asyncio.subprocess.PIPE
        words = (str(folder / "python"), str(ROOT / "tests" / "clients" / "forking.py"), str(folder))
        process = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe)
        try:
            yield cls(folder, files, process)
        finally:
            process.kill()
            await process.wait()

    async def run(self, environment: dict[str, str], program: str, *words: str) -> tuple[int, str, str]:
        """Runs one program to its end. Returns its code, what it printed, and its errors."""
        assert self._process.stdin
        assert self._process.stdout
        files = {name: str(self._files / name) for name in ("out", "err", "loaded")}
        variables = {"PATH": os.environ["PATH"], "HOME": str(self._folder), **environment}
        order = {"program": program, "words": words, "environment": variables, **files}
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        code = await asyncio.wait_for(self._process.stdout.readline(), PATIENCE)
        return int(code), Path(files["out"]).read_text(), Path(files["err"]).read_text()


def install_clients() -> Path:
    """Returns the folder of the clients' programs; installs them first if they are not there yet."""
    place = Path(sys.prefix) / "clients"
    places = (Path(sys.prefix) / "bin", ROOT / ".uv" / "bin")  # run.py puts it into the second
    uv = shutil.which("uv") or shutil.which("uv", path=os.pathsep.join(map(str, places)))
    if uv is None:
        raise ClientsMissing("there is no uv, which installs the clients")
    place.parent.mkdir(exist_ok=True)
    with (place.parent / "clients.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes may want them at once
        environment = {**os.environ, "UV_PROJECT_ENVIRONMENT": str(place)}
        command = [uv, "sync", "--frozen", "--only-group", "clients", "--project", str(ROOT)]
        try:
            subprocess.run(command, env=environment, check=True, capture_output=True, timeout=INSTALL_SECONDS)
        except subprocess.CalledProcessError as error:
            raise ClientsMissing(f"uv could not install them: {error.stderr.decode()[-300:]}") from error
        except subprocess.TimeoutExpired as error:
            raise ClientsMissing(f"uv did not install them within {INSTALL_SECONDS} s") from error
    return place / "bin"
