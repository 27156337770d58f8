"""Reads lists of objects of any length, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator

from domain.model import ObjectView
from domain.ports import Inventory

PAGE_SIZE = 1_000


async def list_all_objects(inventory: Inventory, kind: str, prefix: str) -> AsyncIterator[ObjectView]:
    """Yields every object of a kind at or below a path."""
    after = ""
    while True:
        page = await inventory.list_objects(kind, prefix, after, PAGE_SIZE)
        for view in page:
            yield view
        if len(page) < PAGE_SIZE:
            return
        after = page[-1].path
