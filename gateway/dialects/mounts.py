"""Where each dialect is mounted."""

from __future__ import annotations

import re
from collections.abc import Callable

from fastapi import FastAPI
from starlette.routing import Mount

from gateway.dialects import g8, tumblebug
from gateway.dialects.blazar import build_blazar_app
from gateway.dialects.keystone import build_keystone_app

MOUNTS: dict[str, Callable[[], FastAPI]] = {  # path -> what builds the application there
    "/identity": build_keystone_app,
    "/reservation": build_blazar_app,
    g8.MOUNT: g8.build_g8_app,
    tumblebug.MOUNT: tumblebug.build_tumblebug_app,
}


def mount_dialects(app: FastAPI) -> None:
    """Mounts every dialect."""
    for path, build in MOUNTS.items():
        mount = Mount(path, build())
        mount.path_regex = re.compile(mount.path_regex.pattern, re.DOTALL)  # also a path with a line break is its own
        app.router.routes.append(mount)
