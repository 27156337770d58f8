"""Where each dialect is mounted."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import FastAPI

from gateway.context import Gateway

MOUNTS: dict[str, Callable[[Gateway], FastAPI]] = {}  # path -> what builds the application there


def mount_dialects(app: FastAPI, gateway: Gateway) -> None:
    """Mounts every dialect."""
    for path, build in MOUNTS.items():
        app.mount(path, build(gateway))
