"""The real clients of the old systems, in an environment of their own: the dependency group `clients`, as locked."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import subprocess
import sys
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
