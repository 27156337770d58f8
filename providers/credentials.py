"""What every search for credentials needs: a refusal, a file that nobody else can read, and the cloud's SDK."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from domain.errors import Category, Refused


def missing_credentials_error(what: str, hint: str) -> Refused:
    """Returns the refusal of a connection whose credentials cannot be used, and what to do about it."""
    return Refused(Category.INVALID, what, hint)


def read_private_file(path: str) -> tuple[Path, bytes]:
    """Returns a file and what is in it. Refuses one that others can use, or that cannot be read."""
    file = Path(path).expanduser()
    try:
        if file.stat().st_mode & 0o077:
            raise missing_credentials_error(f"{file} can be used by others", f"chmod 600 {file}")
        return file, file.read_bytes()
    except OSError as error:
        raise missing_credentials_error(
            f"{file} cannot be read: {error.strerror}", "the worker must be able to read it"
        ) from error


def import_sdk(module: str, title: str, extra: str) -> Any:
    """Imports a cloud's SDK. Refused if it is not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        hint = f"pip install 'ratchet[{extra}]', or: uv sync --extra {extra}"
        raise missing_credentials_error(f"{title} is not installed", hint) from error
