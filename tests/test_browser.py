"""What docs/browser.md says can be done in Temporal's Web UI, done there by a real Chromium."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from client.explaining import explain_object
from domain.errors import Refused
from domain.model import ActionResult
from tests.browser import WebUi, chromium, installed
from tests.patience import PATIENCE
from tests.stack import ActionStack
from tests.user import User

pytestmark = pytest.mark.skipif(not installed(), reason="there is no Chromium on this machine")


Send = Callable[[WebUi, str, dict[str, Any]], Awaitable[None]]


@pytest.fixture(scope="module")
async def web(on_sqlite: ActionStack) -> AsyncIterator[WebUi]:
    async with chromium(on_sqlite.server.ui) as window:
        yield window


async def hold(user: User) -> str:
    """An MCI that is prepared and waits for a word; the run of its creation."""
    ticket = await user.admitted(user.mci(), "create", spec=user.groups(option="hold"))
    await user.until_status(user.mci(), "Prepared")
    return ticket.run


async def test_list_and_page_tell_how_far_an_action_is(web: WebUi, user: User) -> None:
    await hold(user)
    prepared = f"ObjectPath = '{user.mci()}' AND Phase = 'Prepared'"
    async with asyncio.timeout(PATIENCE):  # the list, which is read once, tells of it a bit later
        while not (await user.asking.client.count_workflows(prepared)).count:
            await asyncio.sleep(0.1)
    await web.open_list(f'ObjectPath = "{user.mci()}"')
    await web.row(user.mci())
    await web.add_columns("Action", "Phase")
    line = await (await web.row(user.mci())).inner_text()
    assert {"create", "Prepared"} <= set(line.split())
    await web.open(user.mci())
    await web.tab("User Metadata")
    await web.until_told("summary", f"create {user.ns}/web")
    await web.until_told("details", "tester")
    await web.until_told("current-details", "holding: waits for continue or withdraw")


async def test_an_action_is_started_with_one_json_object(web: WebUi, user: User) -> None:
    await web.start(user.mci(), "CreateMci", {"path": user.mci(), "action": "create", "spec": user.groups()})
    outcome = await user.asking.wait_for_outcome(user.mci())
    assert (outcome.result, outcome.status) == (ActionResult.SUCCEEDED, "Running:2 (R:2/2)")


async def test_a_refusal_is_shown_with_its_reason(web: WebUi, user: User) -> None:
    await web.start(user.mci(), "ControlVms", {"path": user.mci(), "action": "suspend"})
    with pytest.raises(Refused):
        await user.asking.wait_for_outcome(user.mci())
    await web.open(user.mci())
    await web.until_shown(f"there is no such MCI: {user.mci()}")


@pytest.mark.parametrize("send", [WebUi.signal, WebUi.update], ids=["signal", "update"])
async def test_an_mci_that_holds_is_told_to_go_on(web: WebUi, user: User, send: Send) -> None:
    run = await hold(user)
    await web.open(user.mci())
    await send(web, "continue", {"requested_by": "eve", "reason": "go"})
    outcome = await user.asking.wait_for_outcome(user.mci(), run)
    assert (outcome.result, outcome.status) == (ActionResult.SUCCEEDED, "Running:2 (R:2/2)")
    assert "continue by eve: go" in [line.message for line in await user.history(user.mci())]


async def test_an_mci_that_holds_is_withdrawn(web: WebUi, user: User) -> None:
    run = await hold(user)
    await web.open(user.mci())
    await web.signal("withdraw", {"requested_by": "eve"})
    outcome = await user.asking.wait_for_outcome(user.mci(), run)
    assert (outcome.result, outcome.status) == (ActionResult.CANCELLED, "None")
    assert outcome.message == "withdraw by eve; the preparation was undone"


async def test_an_action_is_cancelled_and_cleans_up(web: WebUi, user: User) -> None:
    run = await hold(user)
    await web.open(user.mci())
    await web.cancel()
    assert (await user.asking.wait_for_outcome(user.mci(), run)).result is ActionResult.CANCELLED
    assert await user.shared() == {}


async def test_an_action_makes_way_for_a_forced_one(web: WebUi, user: User) -> None:
    run = await hold(user)
    await web.open(user.mci())
    await web.update("preempt", {"path": user.mci(), "action": "delete", "force": True, "requested_by": "eve"})
    assert (await user.asking.wait_for_outcome(user.mci(), run)).result is ActionResult.CANCELLED
    outcome = await user.asking.wait_for_outcome(user.mci())
    assert (outcome.action, outcome.status) == ("delete", "None")


async def test_what_was_terminated_by_hand_is_put_right_by_the_next_action(web: WebUi, user: User) -> None:
    run = await hold(user)
    await web.open(user.mci())
    await web.terminate()
    assert (await user.asking.wait_for_outcome(user.mci(), run)).result is ActionResult.FAILED
    assert (await user.do(user.mci(), "delete")).status == "None"
    assert await user.shared() == {}


async def test_a_paused_action_says_so_and_goes_on_when_it_is_unpaused(web: WebUi, user: User) -> None:
    run = await hold(user)
    await web.open(user.mci())
    await web.pause()
    async with asyncio.timeout(PATIENCE):
        while not (newest := await user.asking.newest_run(user.mci())) or not newest.describe_pause():
            await asyncio.sleep(0.1)
    explained = await explain_object(user.asking, user.mci())
    assert "paused by" in str(explained.remarks)
    assert "temporal workflow unpause" in explained.hint
    await web.open(user.mci())
    await web.unpause()
    async with asyncio.timeout(PATIENCE):
        while (newest := await user.asking.newest_run(user.mci())) and newest.describe_pause():
            await asyncio.sleep(0.1)
    await web.open(user.mci())
    await web.signal_without_data("continue")
    assert (await user.asking.wait_for_outcome(user.mci(), run)).status == "Running:2 (R:2/2)"


async def test_a_workflow_that_was_started_on_a_mistyped_queue_is_named(web: WebUi, user: User) -> None:
    await user.do(user.mci(), "create", spec=user.groups())
    await web.start(user.mci(), "ControlVms", {"path": user.mci(), "action": "suspend"}, queue="actoins")
    explained = await explain_object(user.asking, user.mci())
    assert "on the queue 'actoins'" in str(explained.remarks)
    await web.open(user.mci())
    await web.terminate()
    async with asyncio.timeout(PATIENCE):
        while (newest := await user.asking.newest_run(user.mci())) and newest.is_open:
            await asyncio.sleep(0.1)
    assert (await user.do(user.mci(), "suspend")).status == "Suspended:2 (R:0/2)"
