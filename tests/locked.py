"""Programs that tests use but the project does not: each group in an environment of its own, exactly as locked."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOCKS = Path(__file__).parent / "locks"


def install_locked(name: str, title: str) -> Path:
    """The folder of the programs of `tests/locks/NAME.txt`, installed once. Skips the test if that cannot be done."""
    lock = LOCKS / f"{name}.txt"
    home = ROOT / ".venv-providers" / f"{name}-{sha256(lock.read_bytes()).hexdigest()[:12]}"
    done = home / "complete"
    home.parent.mkdir(exist_ok=True)
    with (home.parent / f"{name}.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)  # several test processes may want them at once
        if not done.exists():
            _install(lock, home, title)
            done.touch()
    return home / "bin"


def _install(lock: Path, home: Path, title: str) -> None:
    uv = shutil.which("uv") or str(ROOT / ".uv" / "bin" / "uv")
    steps: tuple[list[str], ...] = (
        [uv, "venv", "-q", "--clear", "-p", sys.executable, str(home)],
        [uv, "pip", "install", "-q", "--python", f"{home}/bin/python", "--require-hashes", "-r", str(lock)],
    )
    for step in steps:
        try:
            made = subprocess.run(step, capture_output=True, text=True)
        except OSError as error:
            pytest.skip(f"{title} cannot be installed: {error}")
        if made.returncode:
            pytest.skip(f"{title} cannot be installed: {made.stderr[-300:]}")
