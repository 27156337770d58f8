"""Temporal's Web UI as a person uses it: a real Chromium, pages, buttons and forms."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from playwright.async_api import Locator, Page, async_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = [
    "--no-sandbox",  # containers and CI run as root
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",  # it talks to the Web UI and to nobody else
    "--disable-component-update",
    "--disable-sync",
]
FOLLOW = """address => {
    const link = document.createElement("a");
    link.href = address;
    document.querySelector("main").append(link);
    link.click();
    link.remove();
}"""
PATIENCE = 60_000  # milliseconds: the machine may be busy


def installed() -> str:
    """The browser of this machine; empty if it has none."""
    return next((found for name in (os.environ.get("CHROMIUM", ""), *NAMES) if (found := shutil.which(name))), "")


@asynccontextmanager
async def chromium(ui: str) -> AsyncIterator[WebUi]:
    """A window on the Web UI at this address."""
    async with async_playwright() as player:
        browser = await player.chromium.launch(executable_path=installed(), args=FLAGS)
        page = await browser.new_page(viewport={"width": 1400, "height": 900})
        page.set_default_timeout(PATIENCE)
        try:
            yield WebUi(page, f"{ui}/namespaces/default/workflows")
        finally:
            await browser.close()


@dataclass(frozen=True)
class WebUi:
    page: Page
    address: str

    async def _go(self, address: str) -> None:
        """By links, over a page without workflows: to load the whole program anew takes four seconds of CPU."""
        neutral = f"{self.address.partition('/namespaces/')[0]}/namespaces"
        if not self.page.url.startswith(neutral):
            await self.page.goto(neutral)
        else:
            await self.page.evaluate(FOLLOW, neutral)
        await self.page.wait_for_url(neutral)
        await self.page.get_by_role("heading", name="Namespaces").wait_for()
        await self.page.evaluate(FOLLOW, address)
        await self.page.wait_for_url(f"{address}**")

    async def open_list(self, query: str = "") -> None:
        """The list of workflows, all of them or those that a query finds."""
        await self._go(f"{self.address}?query={quote(query)}" if query else self.address)

    async def row(self, path: str) -> Locator:
        """The line of a workflow in the list, when it is there."""
        found = self.page.get_by_role("row").filter(has=self.page.get_by_role("link", name=path, exact=True)).first
        await found.wait_for()
        return found

    async def add_columns(self, *names: str) -> None:
        """Show search attributes as columns; the browser remembers it."""
        await self._columns(f"Add {name} column" for name in names)

    async def remove_columns(self, *names: str) -> None:
        await self._columns(f"Remove {name} column" for name in names)

    async def open(self, path: str) -> None:
        """The newest run of a workflow, when its page is there."""
        await self._go(f"{self.address}/{path}")
        await self.page.get_by_text("Event History").first.wait_for()

    async def tab(self, name: str) -> None:
        await self.page.get_by_role("tab", name=name).click()

    async def until_shown(self, text: str) -> None:
        await self.page.get_by_text(text).locator("visible=true").first.wait_for()

    async def until_told(self, part: str, text: str) -> None:
        """In a part of the tab User Metadata; each is a frame of its own."""
        await self.page.frame_locator(f"#user-metadata-{part}").get_by_text(text).first.wait_for()

    async def start(self, path: str, kind: str, given: dict[str, Any], queue: str = "actions") -> None:
        """The form behind the button Start Workflow."""
        await self._go(f"{self.address}/start-workflow")
        await self.page.get_by_test_id("workflowId").fill(path)
        await self.page.get_by_test_id("taskQueue").fill(queue)
        await self.page.get_by_test_id("workflowType").fill(kind)
        await self._data(self.page.locator("main"), given)
        # By key: a click takes the focus from the editor, which then grows and moves the button away under the mouse.
        # The answer, not the message about it: that is shown for a moment only.
        async with self.page.expect_response(lambda answer: answer.request.method == "POST") as answered:
            await self.page.locator("main").get_by_role("button", name="Start Workflow").last.press("Enter")
        assert (await answered.value).ok

    async def signal(self, name: str, given: dict[str, Any]) -> None:
        await self._send("Send a Signal", "signal-select", name, given)

    async def update(self, name: str, given: dict[str, Any]) -> None:
        await self._send("Send an Update", "update-select", name, given)

    async def signal_without_data(self, name: str) -> None:
        dialog = await self._choose("Send a Signal")
        await dialog.get_by_test_id("signal-select-button").click()
        await self.page.get_by_role("option", name=re.compile(rf"^{name}\b")).click()
        await dialog.get_by_role("button", name="Submit").press("Enter")

    async def pause(self) -> None:
        await self._press("Pause Workflow")

    async def unpause(self) -> None:
        await self._press("Unpause Workflow")

    async def _press(self, name: str) -> None:
        """A button of the page, and the button of the same name in the dialog that it opens."""
        await self.page.get_by_role("button", name=name, exact=True).click()
        await self.page.locator("dialog[open]").get_by_role("button", name=name, exact=True).click()

    async def cancel(self) -> None:
        await (await self._choose("Request Cancellation")).get_by_role("button", name="Confirm").click()

    async def terminate(self) -> None:
        await (await self._choose("Terminate")).get_by_role("button", name="Terminate").click()

    async def picture(self, file: Path) -> None:
        await self.page.screenshot(path=file)

    async def fill_signal(self, name: str, given: dict[str, Any]) -> Locator:
        """The dialog, filled in and not sent."""
        return await self._fill("Send a Signal", "signal-select", name, given)

    async def _send(self, what: str, field: str, name: str, given: dict[str, Any]) -> None:
        await (await self._fill(what, field, name, given)).get_by_role("button", name="Submit").press("Enter")

    async def _fill(self, what: str, field: str, name: str, given: dict[str, Any]) -> Locator:
        dialog = await self._choose(what)
        await dialog.get_by_test_id(f"{field}-button").click()
        await self.page.get_by_role("option", name=re.compile(rf"^{name}\b")).click()  # its help is part of it
        await self._data(dialog, given)
        return dialog

    async def _columns(self, buttons: Iterable[str]) -> None:
        await self.page.get_by_role("button", name="Configure Columns").click()
        for button in buttons:
            await self.page.get_by_role("button", name=button, exact=True).click()
        close = self.page.get_by_test_id("drawer-close-button")
        await close.click()
        await close.wait_for(state="hidden")

    async def _choose(self, what: str) -> Locator:
        """An entry of the menu More Actions, and the dialog that it opens."""
        await self.page.get_by_role("button", name="More Actions").click()
        await self.page.get_by_role("menuitem", name=what, exact=True).click()
        dialog = self.page.locator("dialog[open]")
        await dialog.wait_for()
        return dialog

    async def _data(self, where: Locator, given: dict[str, Any]) -> None:
        """One JSON object, typed into the editor."""
        await where.get_by_role("textbox", name="Data").click()
        await self.page.keyboard.insert_text(json.dumps(given))
