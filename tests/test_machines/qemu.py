"""Real QEMU processes for tests: where they live, and how they end."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from providers.machines.qemu import QemuOptions

needs_qemu = pytest.mark.skipif(
    not (shutil.which("qemu-system-x86_64") and shutil.which("qemu-img")),
    reason="there is no QEMU on this machine: apt install qemu-system-x86 qemu-utils",
)


def qemu_options(folder: Path) -> QemuOptions:
    """A host with two nodes and an empty image."""
    image = folder.parent / "empty.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", image, "1G"], check=True)
    return QemuOptions(provider="qemu", folder=folder, nodes=("n1", "n2"), images={"u": image})


def end_qemu_processes(folder: Path) -> None:
    """Kills what a test left running."""
    for file in folder.rglob("*.pid"):
        with suppress(OSError, ValueError):
            os.kill(int(file.read_text()), signal.SIGKILL)
