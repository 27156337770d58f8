"""`starter tui`: opens the full-screen view. Textual is imported only when it runs."""

from __future__ import annotations

from domain.errors import Category, Refused
from starter.errors import ExitCode
from starter.session import open_client


async def tui() -> ExitCode:
    """A full screen of objects, running actions, locks and history, with actions on keys. q ends it.

    Example: starter tui
    """
    try:
        from starter.tui import Tui
    except ImportError as error:
        raise Refused(
            Category.INVALID, f"the full-screen view is not installed: {error}", "pip install textual"
        ) from error
    async with open_client() as client:
        await Tui(client).run_async()
    return ExitCode.DONE
