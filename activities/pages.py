"""Reads lists of objects of any length, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator

from domain.model import ObjectView
from domain.ports import Inventory

PAGE = 1_000


async def list_all(inventory: Inventory, kind: str, prefix: str) -> AsyncIterator[ObjectView]:
    """Yields every object of a kind at or below a path."""
    after = ""
    while True:
        page = await inventory.list_objects(kind, prefix, after, PAGE)
        for view in page:
            yield view
        if len(page) < PAGE:
            return
        after = page[-1].path
