"""Functions that record the histories of the kernel and of every family."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from tests.registry import NAMES, module_of

FAMILIES: dict[str, Callable[..., Awaitable[Any]]] = {
    name: module_of(name, __name__).record for name in ("kernel", *NAMES)
}
