"""`starter demo systems`."""

from __future__ import annotations

from starter.errors import Exit


async def systems() -> Exit:
    """To be told."""
    return Exit.DONE
