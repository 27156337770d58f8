"""/docs in a real Chromium: it shows the operations, and asks nobody but the gateway."""

from __future__ import annotations

import pytest

from tests import browser


@pytest.mark.skipif(not browser.installed(), reason="there is no Chromium on this machine")
async def test_the_docs_page_is_shown_without_any_other_site(url: str) -> None:
    asked: list[str] = []
    complaints: list[str] = []
    async with browser.chromium(url) as window:
        window.page.on("request", lambda request: asked.append(request.url))
        window.page.on("console", lambda message: complaints.append(message.text))
        await window.page.goto(f"{url}/docs")
        await window.page.get_by_text("/v1/objects/{path}/actions/suspend").first.wait_for()
        assert await window.page.title()
    assert asked
    assert all(each.startswith((f"{url}/", "data:")) for each in asked), asked
    assert not [each for each in complaints if "Content Security Policy" in each], complaints
