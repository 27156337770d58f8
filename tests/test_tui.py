"""The full-screen view, driven by keys as a person drives it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from textual import events
from textual.binding import Binding
from textual.keys import _character_to_key
from textual.pilot import Pilot
from textual.widgets import DataTable, Input, Label, OptionList, Static

from client.actions import ActionClient
from gateway.reads import GatewayClient
from starter.dialogs import ChoiceScreen, HelpScreen
from starter.tui import Tui
from tests.patience import PATIENCE
from tests.user import User, spec
from workers.service import WorkerService


@pytest.fixture
def asking(stack: WorkerService) -> ActionClient:
    """It reads as where there is a gateway: a read by a worker takes half as much as an action, and here are many."""
    return GatewayClient(stack.client, stack.store_reads())


async def until(pilot: Pilot[None], true: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not true():
            await pilot.pause(0.05)


def cells(app: Tui, table: str) -> list[list[str]]:
    found = app.query_one(f"#{table}-table", DataTable)
    return [[str(cell) for cell in found.get_row(key)] for key in found.rows]


def offered(app: Tui) -> list[str]:
    """The words that the open dialog offers."""
    if not app.screen.query(OptionList):
        return []  # the dialog is not mounted yet
    listed = app.screen.query_one(OptionList)
    return [str(listed.get_option_at_index(index).prompt) for index in range(listed.option_count)]


async def choose(pilot: Pilot[None], app: Tui, word: str) -> None:
    """Press keys until this word of the open dialog is chosen."""
    for _ in range(offered(app).index(word)):
        await pilot.press("down")
    await pilot.press("enter")


async def open_dialog(pilot: Pilot[None], app: Tui) -> None:
    await pilot.press("a")
    await until(pilot, lambda: isinstance(app.screen, ChoiceScreen) and bool(offered(app)))


def type_at_once(app: Tui, *keys: str) -> None:
    """Sends keys without a pause: all are in the queue before the first is handled."""
    for key in keys:
        named = _character_to_key(key) if len(key) == 1 else key
        app.post_message(events.Key(named, key if len(key) == 1 else None))


def title(app: Tui) -> str:
    """The question of the open dialog, if there is one."""
    if not isinstance(app.screen, ChoiceScreen):
        return ""
    return "".join(str(label.content) for label in app.screen.query(Label))


async def find(pilot: Pilot[None], app: Tui, words: str) -> None:
    """Only what has these words in its path."""
    await pilot.press("slash")
    app.query_one("#filter", Input).value = words
    await pilot.press("enter")
    await until(
        pilot,
        lambda: (
            bool(shown := cells(app, "objects"))
            and all(words.removeprefix("ns:").strip(":") in row[1] for row in shown)
        ),
    )


@asynccontextmanager
async def own_objects(user: User) -> AsyncIterator[tuple[Tui, Pilot[None]]]:
    """The view on a large terminal, with this test's own objects only."""
    app = Tui(user.asking)
    async with app.run_test(size=(160, 40)) as pilot:
        await find(pilot, app, f"ns:{user.ns}:")
        yield app, pilot


async def test_objects_are_shown_and_follow_what_happens(user: User) -> None:
    await user.do(user.mci(), "create", spec=spec(2, ["aws"]))
    async with own_objects(user) as (app, pilot):
        assert cells(app, "objects")[0][:3] == ["mci", f"{user.ns}/web", "Running:2 (R:2/2)"]
        await user.do(user.mci(), "suspend")
        await until(pilot, lambda: cells(app, "objects")[0][2] == "Suspended:2 (R:0/2)")
        await until(pilot, lambda: "suspend: Suspending → at rest" in str(app.query_one("#side", Static).content))
        assert "create: - → Preparing" in str(app.query_one("#side", Static).content), "nothing was there before"
        side = app.query_one("#side", Static).region
        assert 0 < side.x < side.right <= 160, "the history is on the screen"


async def test_a_narrow_terminal_shows_the_objects_alone(user: User) -> None:
    app = Tui(user.asking)
    async with app.run_test(size=(60, 20)) as pilot:
        await until(pilot, lambda: not app.query_one("#side", Static).display)
        assert app.query_one("#objects-table", DataTable).region.right <= 60


def own_locks(app: Tui, user: User) -> list[list[str]]:
    """Those of the user's namespace: an earlier test may have left others."""
    return [row for row in cells(app, "locks") if row[0].startswith(f"ns:{user.ns}:")]


async def test_only_what_is_allowed_now_is_offered(user: User) -> None:
    await user.do(user.mci(), "create", spec=spec(1, ["aws"]))
    async with own_objects(user) as (app, pilot):
        await open_dialog(pilot, app)
        assert offered(app) == ["suspend", "reboot", "terminate", "delete"]
        await choose(pilot, app, "suspend")
        await until(pilot, lambda: "admitted" in app.told)
        await user.until_status(user.vm("aws0-1"), "Suspended")
        await until(pilot, lambda: cells(app, "objects")[0][2].startswith("Suspended") and not own_locks(app, user))
        await open_dialog(pilot, app)
        assert offered(app) == ["resume", "terminate", "delete"]
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, ChoiceScreen))


@pytest.mark.parametrize(("answer", "status"), [("no", "Running"), ("yes", "Terminated")])
async def test_what_cannot_be_undone_is_asked_for(user: User, answer: str, status: str) -> None:
    await user.do(user.mci(), "create", spec=spec(1, ["aws"]))
    async with own_objects(user) as (app, pilot):
        await open_dialog(pilot, app)
        await choose(pilot, app, "terminate")
        await until(pilot, lambda: isinstance(app.screen, ChoiceScreen) and offered(app) == ["no", "yes"])
        question = str(app.screen.query_one(Label).content)
        assert question == f"terminate {user.ns}/web with 1 VM? This cannot be undone."
        await choose(pilot, app, answer)
        await until(pilot, lambda: ("admitted" if answer == "yes" else "nothing was changed") in app.told)
        await user.until_status(user.vm("aws0-1"), status)


async def test_an_mci_that_holds_is_continued(user: User) -> None:
    ticket = await user.admitted(user.mci(), "create", spec=user.groups(option="hold"))
    await user.until_status(user.mci(), "Prepared")
    async with own_objects(user) as (app, pilot):
        await open_dialog(pilot, app)
        assert offered(app) == ["continue", "withdraw"]
        await choose(pilot, app, "continue")
        assert (await user.asking.wait_for_outcome(ticket.path, ticket.run)).status.startswith("Running")


async def test_a_filter_keeps_the_cursor_on_its_object(user: User) -> None:
    for name in ("alpha", "beta", "gamma"):
        await user.do(user.mci(name), "create", spec=spec(1, ["aws"]))
    async with own_objects(user) as (app, pilot):
        await until(pilot, lambda: len(cells(app, "objects")) == 6)
        await pilot.press("down")
        await until(pilot, lambda: app._selected_path() == user.mci("beta"))
        await find(pilot, app, f"{user.ns}/beta")
        await until(pilot, lambda: len(cells(app, "objects")) == 2)
        assert app._selected_path() == user.mci("beta")
        await find(pilot, app, f"ns:{user.ns}:")
        await until(pilot, lambda: len(cells(app, "objects")) == 6)
        assert app._selected_path() == user.mci("beta")
        assert [row[1] for row in cells(app, "objects")][:3] == [
            f"{user.ns}/{name}" for name in ("alpha", "beta", "gamma")
        ]
        await find(pilot, app, f"{user.ns}/gamma")
        await until(pilot, lambda: len(cells(app, "objects")) == 2)
        assert app._selected_path() == user.mci("gamma"), "the object under the cursor is not shown: the first one is"


async def test_hostile_text_is_shown_as_text(user: User) -> None:
    hostile = "[/red] [bold]x[/] [@click=app.quit]\x1b[2Jgone"
    await user.do(user.mci(), "create", spec=spec(1, ["aws"]))
    await user.fault("fail", verb="suspend", message=hostile)
    await user.do(user.mci(), "suspend")
    async with own_objects(user) as (app, pilot):
        await until(pilot, lambda: any("[/red] [bold]x" in cell for row in cells(app, "objects") for cell in row))
        await pilot.press("down")
        await until(pilot, lambda: "[/red] [bold]x" in str(app.query_one("#side", Static).content))
        shown = "".join(cell for row in cells(app, "objects") for cell in row)
        assert "\x1b" not in shown
        assert "\\x1b[2Jgone" in shown


async def test_running_actions_and_their_locks_are_shown_and_can_be_cancelled(user: User, patient: None) -> None:
    await user.do(user.mci(), "create", spec=spec(1, ["aws"]))
    await user.fault("hang", verb="reboot", seconds=600)
    ticket = await user.admitted(user.mci(), "reboot")
    async with own_objects(user) as (app, pilot):
        await until(pilot, lambda: any(row[:2] == [user.mci(), "reboot"] for row in cells(app, "running")))
        await until(pilot, lambda: any(row[:2] == [user.mci(), "X"] for row in cells(app, "locks")))
        await pilot.press("c")
        await until(pilot, lambda: isinstance(app.screen, ChoiceScreen) and bool(offered(app)))
        await pilot.press("enter")
        assert (await user.asking.wait_for_outcome(user.mci(), ticket.run)).result == "cancelled"
        await until(pilot, lambda: not any(row[0] == user.mci() for row in cells(app, "locks")))


async def test_keys_typed_at_once_act_on_what_the_filter_shows(user: User) -> None:
    for name in ("alpha", "beta", "gamma"):
        await user.do(user.mci(name), "create", spec=spec(1, ["aws"]))
    async with own_objects(user) as (app, pilot):
        await until(pilot, lambda: len(cells(app, "objects")) == 6)
        assert app._selected_path() == user.mci("alpha")
        type_at_once(app, "/", *("backspace",) * len(f"ns:{user.ns}:"), *f"{user.ns}/gamma", "enter", "a")
        await until(pilot, lambda: isinstance(app.screen, ChoiceScreen) and bool(offered(app)))
        assert title(app) == f"what to do with {user.ns}/gamma"
        assert app.query_one("#filter", Input).value == f"{user.ns}/gamma"
        assert cells(app, "objects")[0][1] == f"{user.ns}/gamma"


async def test_keys_typed_at_once_after_the_cursor_moved_act_on_its_row(user: User) -> None:
    for name in ("alpha", "beta"):
        await user.do(user.mci(name), "create", spec=spec(1, ["aws"]))
    async with own_objects(user) as (app, pilot):
        await until(pilot, lambda: len(cells(app, "objects")) == 4)
        type_at_once(app, "down", "a", "enter", "down", "a")  # suspend is the first of the choices
        await until(pilot, lambda: "admitted" in app.told)
        assert app.told == f"suspend of {user.ns}/beta: admitted"
        await user.until_status(user.vm("aws0-1", "beta"), "Suspended")
        assert app._selected_path() == user.mci("beta"), "keys typed into a dialog do not move the cursor"
        assert (await user.asking.read_object(user.mci("alpha"))).status.startswith("Running")


async def test_a_confirmation_is_answered_only_by_keys_typed_after_it_is_shown(user: User) -> None:
    await user.do(user.mci(), "create", spec=spec(1, ["aws"]))
    app = Tui(user.asking)
    async with app.run_test(size=(60, 20)) as pilot:
        await find(pilot, app, f"ns:{user.ns}:")
        type_at_once(app, "a", "down", "down", "enter", "down", "enter", "enter")  # terminate is the third choice
        await until(pilot, lambda: title(app).startswith("terminate"))
        assert title(app) == f"terminate {user.ns}/web with 1 VM? This cannot be undone."
        await pilot.pause()
        shown = "\n".join("".join(part.text for part in strip) for strip in app.screen._compositor.render_strips())
        assert "cannot be undone" in " ".join(shown.replace("│", " ").split()), "the whole question is on the screen"
        assert "admitted" not in app.told
        await pilot.press("enter")
        await until(pilot, lambda: "nothing was changed" in app.told)
        await user.until_status(user.vm("aws0-1"), "Running")


def bound_keys() -> list[str]:
    return [binding.key for binding in Tui.BINDINGS if isinstance(binding, Binding)]


async def test_the_question_mark_explains_the_keys(user: User) -> None:
    await user.do(user.mci(), "create", spec=spec(1, ["aws"]))
    async with own_objects(user) as (app, pilot):
        assert cells(app, "objects")[0][3] == "", "no action runs: no target"
        await pilot.press("question_mark")
        assert isinstance(app.screen, HelpScreen)
        text = str(app.screen.query_one(Static).content)
        keys = {"/" if key == "slash" else "?" if key == "question_mark" else key for key in bound_keys()}
        assert keys <= set(text.split()), "every key of the footer is explained"
        await pilot.press("escape")
        assert not isinstance(app.screen, HelpScreen)
