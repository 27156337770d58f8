"""An image for containers, made of this machine's static busybox, and why there may be none."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

BUSYBOX = Path("/bin/busybox")
APPLETS = ("cat", "echo", "env", "false", "grep", "httpd", "id", "ls", "mkdir", "nc", "sh", "sleep", "tail", "touch",
           "true", "ulimit", "wget", "dd", "hostname", "test", "unshare", "kill", "chmod")  # fmt: skip


def _is_static(program: Path) -> bool:
    return program.exists() and b"ld-linux" not in program.read_bytes()[:4_096]


def why_no_containers() -> str:
    """Why containers cannot be made here; empty if they can."""
    if os.geteuid() != 0:
        return "containers need root"
    if not shutil.which("runc"):
        return "there is no runc on this machine: apt install runc"
    if not _is_static(BUSYBOX):
        return "there is no static busybox on this machine: apt install busybox-static"
    return ""


def make_image(folder: Path) -> Path:
    """A root file system with a shell and an HTTP server."""
    if not (folder / "bin").exists():
        (folder / "bin").mkdir(parents=True)
        shutil.copy(BUSYBOX, folder / "bin" / "busybox")
        for applet in APPLETS:
            (folder / "bin" / applet).symlink_to("busybox")
        for path in (folder, folder / "bin", folder / "bin" / "busybox"):
            path.chmod(0o755)
    return folder


def web_script(version: str) -> str:
    """Serves its version at /, and /health."""
    made = f"mkdir -p /tmp/www; echo version {version} >/tmp/www/index.html; echo ok >/tmp/www/health"
    return f"{made}; exec httpd -f -p $PORT -h /tmp/www"


def web(image: Path, port: int, version: str = "1", **more: Any) -> dict[str, Any]:
    health = {"http": "/health", "interval": 0.1}
    return {"image": str(image), "command": ["sh", "-c", web_script(version)], "port": port, "health": health, **more}


def sleeper(image: Path, **more: Any) -> dict[str, Any]:
    return {"image": str(image), "command": ["sleep", "1000"], **more}
