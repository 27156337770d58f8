"""The full-screen view, driven by keys as a person drives it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from textual.pilot import Pilot
from textual.widgets import DataTable, Input, Static

from starter.tui import ChoiceScreen, Tui
from tests.patience import PATIENCE
from tests.user import User, spec


async def until(pilot: Pilot[None], true: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not true():
            await pilot.pause(0.05)


def cells(app: Tui, table: str) -> list[list[str]]:
    found = app.query_one(f"#{table}-table", DataTable)
    return [list(found.get_row(key)) for key in found.rows]


async def find(pilot: Pilot[None], app: Tui, words: str) -> None:
    """Only what has these words in its path."""
    await pilot.press("slash")
    app.query_one("#filter", Input).value = words
    await pilot.press("enter")
    await until(
        pilot,
        lambda: bool(cells(app, "objects")) and all(words.split(":")[1] in row[1] for row in cells(app, "objects")),
    )


async def test_objects_are_shown_and_follow_what_happens(user: User) -> None:
    await user.do(user.mci(), "create", spec=spec(2, ["aws"]))
    app = Tui(user.asking)
    async with app.run_test(size=(160, 40)) as pilot:
        await find(pilot, app, f"ns:{user.ns}:")
        assert cells(app, "objects")[0][:3] == ["mci", f"{user.ns}/web", "Running:2 (R:2/2)"]
        await user.do(user.mci(), "suspend")
        await until(pilot, lambda: cells(app, "objects")[0][2] == "Suspended:2 (R:0/2)")
        await until(pilot, lambda: "suspend: Suspending" in str(app.query_one("#side", Static).content))
        side = app.query_one("#side", Static).region
        assert 0 < side.x < side.right <= 160, "the history is on the screen"


async def test_a_narrow_terminal_shows_the_objects_alone(user: User) -> None:
    app = Tui(user.asking)
    async with app.run_test(size=(60, 20)) as pilot:
        await until(pilot, lambda: not app.query_one("#side", Static).display)
        assert app.query_one("#objects-table", DataTable).region.right <= 60


async def test_an_action_is_asked_for_by_keys_and_a_refusal_is_told(user: User) -> None:
    await user.do(user.mci(), "create", spec=spec(1, ["aws"]))
    app = Tui(user.asking)
    async with app.run_test(size=(160, 40)) as pilot:
        await find(pilot, app, f"ns:{user.ns}:")
        await pilot.press("a")
        await until(pilot, lambda: isinstance(app.screen, ChoiceScreen))
        await pilot.press("enter")  # suspend is the first
        await until(pilot, lambda: "admitted" in app.told)
        await user.until_status(user.vm("aws0-1"), "Suspended")
        await pilot.press("a")
        await until(pilot, lambda: isinstance(app.screen, ChoiceScreen))
        await pilot.press("enter")
        await until(pilot, lambda: "not allowed" in app.told or "409" in app.told)
        await pilot.press("a")
        await until(pilot, lambda: isinstance(app.screen, ChoiceScreen))
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, ChoiceScreen))


async def test_running_actions_and_their_locks_are_shown_and_can_be_cancelled(user: User) -> None:
    await user.do(user.mci(), "create", spec=spec(1, ["aws"]))
    await user.fault("hang", verb="reboot", seconds=20)
    ticket = await user.admitted(user.mci(), "reboot")
    app = Tui(user.asking)
    async with app.run_test(size=(160, 40)) as pilot:
        await find(pilot, app, f"ns:{user.ns}:")
        await until(pilot, lambda: any(row[:2] == [user.mci(), "reboot"] for row in cells(app, "running")))
        await until(pilot, lambda: any(row[:2] == [user.mci(), "X"] for row in cells(app, "locks")))
        await pilot.press("c")
        await until(pilot, lambda: isinstance(app.screen, ChoiceScreen))
        await pilot.press("enter")
        assert (await user.asking.wait_for_outcome(user.mci(), ticket.run)).result == "cancelled"
        await until(pilot, lambda: not any(row[0] == user.mci() for row in cells(app, "locks")))
