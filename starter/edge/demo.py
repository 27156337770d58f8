"""`starter demo edge`: to be told."""

from __future__ import annotations

from starter.errors import Exit


async def demo() -> Exit:
    """A cloudlet."""
    return Exit.DONE
