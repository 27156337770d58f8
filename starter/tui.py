"""`starter tui`: objects, running actions, locks and history on one screen, with actions on keys."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Header, Input, Label, OptionList, Static, TabbedContent, TabPane
from textual.widgets.option_list import Option

from domain import registry, wire
from domain.errors import RatchetError, Refused
from domain.locks import LocksView
from domain.model import ObjectView, ReadQuery, Request
from domain.paths import kind_of, short_path
from starter.naming import user_name
from starter.terminal import as_typed, escape_controls

if TYPE_CHECKING:
    from client.actions import ActionClient

REFRESH_SECONDS = 1.0  # seconds between polls
MAX_ROWS = 500  # the most objects on the screen; `starter list` shows all

HEADINGS_OF_TABLE = {
    "objects": ("KIND", "NAME", "STATUS", "TARGET", "CHANGED", "ERROR"),
    "running": ("PATH", "ACTION", "PHASE", "PROGRESS", "SINCE"),
    "locks": ("PATH", "MODE", "ACTION", "OWNER", "SINCE"),
}


class ChoiceScreen(ModalScreen[str | None]):
    """A modal list: of actions, or of `yes` as a confirmation."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "back")]

    def __init__(self, title: str, words: Sequence[str]) -> None:
        super().__init__()
        self._title = title
        self._words = words

    def compose(self) -> ComposeResult:
        with Vertical(id="choice"):
            yield Label(self._title)
            yield OptionList(*(Option(word, id=word) for word in self._words))

    def on_option_list_option_selected(self, chosen: OptionList.OptionSelected) -> None:
        self.dismiss(chosen.option.id)


class Tui(App[None]):
    """The full-screen view. Its actions are the same requests as the CLI's."""

    TITLE = "ratchet"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (90, "-wide")]
    CSS = """
    TabbedContent { width: 1fr; }
    .-narrow #side { display: none; }
    #side { width: 45%; border-left: solid $primary; padding: 0 1; }
    #choice { width: 60; height: auto; border: thick $primary; background: $surface; padding: 1; }
    Choice { align: center middle; }
    DataTable { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "act", "action"),
        Binding("c", "cancel", "cancel"),
        Binding("slash", "find", "filter"),
        Binding("r", "refresh", "refresh"),
        Binding("q", "quit", "quit"),
    ]

    def __init__(self, client: ActionClient) -> None:
        super().__init__()
        self._asking = client
        self._only = ""
        self._looking = False
        self.told = ""  # the last notification, for tests

    def compose(self) -> ComposeResult:
        yield Header()
        yield Input(placeholder="only paths with this in them; Enter", id="filter")
        with Horizontal():
            with TabbedContent(initial="objects"):
                for name in HEADINGS_OF_TABLE:
                    with TabPane(name.title(), id=name):
                        yield DataTable[str](id=f"{name}-table", cursor_type="row", zebra_stripes=True)
            yield Static(id="side", markup=False)
        yield Footer()

    async def on_mount(self) -> None:
        for name, headings in HEADINGS_OF_TABLE.items():
            self._find_table(name).add_columns(*headings)
        self.query_one("#filter", Input).display = False
        self.action_refresh()
        self.set_interval(REFRESH_SECONDS, self.action_refresh)
        self._find_table("objects").focus()

    @work(group="refresh")
    async def action_refresh(self) -> None:
        """Refreshes all tables; the cursor stays on its object. Refreshes do not overlap."""
        if self._looking:
            return
        self._looking = True
        try:
            self._fill_table("objects", [(view.path, _object_cells(view)) for view in await self._read_objects()])
            self._fill_table("running", await self._read_actions())
            held = (await self._asking.run_query(wire.READ_LOCKS, ReadQuery(), LocksView)).locks
            lines = [(view.path, view.mode, view.action, view.owner, _format_time(view.since)) for view in held]
            self._fill_table("locks", [(f"{line[0]} {line[3]}", line) for line in lines])
            await self._update_details()
        except RatchetError as error:
            self._notify_user(str(error), "error")
        finally:
            self._looking = False

    @work(exclusive=True, group="act")
    async def action_act(self) -> None:
        """Lets the user choose an action for the object under the cursor, and requests it."""
        if not (path := self._selected_path()):
            return
        verbs = [
            verb.action
            for verb in registry.find_kind(kind_of(path)).verbs
            if verb.spec is None and not verb.is_internal
        ]
        if (action := await self.push_screen_wait(ChoiceScreen(f"what to do with {short_path(path)}", verbs))) is None:
            return
        try:
            ticket = await self._asking.request_action(
                Request(path=path, action=action, requested_by=user_name(), reason="tui")
            )
            if ticket.admission.refusal:
                raise ticket.admission.refusal.to_error()
        except Refused as refused:
            self._notify_user(as_typed(f"{refused.message}\n{refused.hint}"), "error")
        except RatchetError as error:
            self._notify_user(str(error), "error")
        else:
            self._notify_user(f"{action} of {short_path(path)}: admitted")
        self.action_refresh()

    @work(exclusive=True, group="act")
    async def action_cancel(self) -> None:
        """Cancels the action that runs on the object under the cursor."""
        if not (path := self._selected_path()):
            return
        if await self.push_screen_wait(ChoiceScreen(f"cancel what runs on {short_path(path)}?", ["yes"])) != "yes":
            return
        try:
            await self._asking.cancel_action(path)
            self._notify_user(f"asked {short_path(path)} to end what it does")
        except Exception as error:  # Temporal's message: the action has ended, or the server cannot be reached
            self._notify_user(str(error), "warning")

    def action_find(self) -> None:
        field = self.query_one("#filter", Input)
        field.display = True
        field.focus()

    def on_input_submitted(self, given: Input.Submitted) -> None:
        self._only = given.value.strip()
        given.input.display = bool(self._only)
        self._find_table("objects").focus()
        self.action_refresh()

    async def on_data_table_row_highlighted(self) -> None:
        self._refresh_side()

    @work(exclusive=True, group="side")
    async def _refresh_side(self) -> None:
        await self._update_details()

    async def _update_details(self) -> None:
        """Shows status and history of the object under the cursor."""
        side = self.query_one("#side", Static)
        if not (path := self._selected_path()):
            side.update("")
            return
        try:
            view = await self._asking.read_object(path)
            lines = await self._asking.read_history(path, 30)
        except RatchetError as error:
            side.update(escape_controls(str(error)))
            return
        told = [path, view.status, *([view.error] if view.error else []), ""]
        told += [
            f"{_format_time(line.at)} {line.action}: {line.source} → {line.to} {line.message}"
            for line in reversed(lines)
        ]
        side.update(escape_controls("\n".join(told)))

    async def _read_objects(self) -> list[ObjectView]:
        found: list[ObjectView] = []
        for kind in registry.KINDS:
            async for view in self._asking.iterate_objects(kind):
                if self._only in view.path:
                    found.append(view)
                if len(found) >= MAX_ROWS:
                    return found
        return found

    async def _read_actions(self) -> list[tuple[str, tuple[str, ...]]]:
        lines = []
        async for run in self._asking.client.list_workflows("ExecutionStatus = 'Running'", limit=MAX_ROWS):
            known = {pair.key.name: pair.value for pair in run.typed_search_attributes}
            words = (str(known.get(name, "")) for name in ("Action", "Phase", "Progress"))
            lines.append((run.id, (run.id, *words, _format_time(run.start_time))))
        return lines

    def _fill_table(self, name: str, lines: Iterable[tuple[str, Sequence[str]]]) -> None:
        """Updates a table in place: adds, changes and removes rows by key."""
        table = self._find_table(name)
        wanted = dict(lines)
        for key in [str(key.value) for key in table.rows if str(key.value) not in wanted]:
            table.remove_row(key)
        columns = [column.key for column in table.ordered_columns]
        known = {str(key.value) for key in table.rows}
        for key, cells in wanted.items():
            safe = [escape_controls(cell) for cell in cells]
            if key not in known:
                table.add_row(*safe, key=key)
            else:
                for column, cell in zip(columns, safe, strict=True):
                    table.update_cell(key, column, cell)

    def _selected_path(self) -> str | None:
        """Returns the path under the cursor of the active table."""
        table = self._find_table(self.query_one(TabbedContent).active)
        if not table.row_count:
            return None
        key = str(table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value).split(" ")[0]
        return key if "::" not in key and kind_of(key) in registry.KINDS else None

    def _find_table(self, name: str) -> DataTable[str]:
        return self.query_one(f"#{name}-table", DataTable)

    def _notify_user(self, text: str, severity: str = "information") -> None:
        self.told = text
        self.notify(escape_controls(text), severity=severity, markup=False)  # type: ignore[arg-type]


def _object_cells(view: ObjectView) -> tuple[str, ...]:
    doing = registry.find_kind(view.kind).target_action_word(view.target_action)
    return (view.kind, short_path(view.path), view.status, doing, _format_time(view.changed_at), view.error)


def _format_time(at: datetime) -> str:
    return f"{at:%m-%d %H:%M:%S}"
