"""`starter tui`: objects, running actions, locks and history on one screen, with actions on keys."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from temporalio.converter import decode_typed_search_attributes
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Header, Input, Label, OptionList, Static, TabbedContent, TabPane
from textual.widgets.option_list import Option

from activities.runs import OPEN_RUNS, PAUSED, list_runs
from client.explaining import find_possible_actions
from client.sending import send_signal
from domain import registry, wire
from domain.errors import RatchetError, Refused
from domain.locks import LocksView
from domain.model import ObjectView, ReadQuery, Request
from domain.paths import kind_of, short_path
from starter.confirmation import confirmation_question
from starter.options import required_options
from starter.terminal import escape_controls, rewrite_as_typed

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
            yield Label(escape_controls(self._title), markup=False)
            yield OptionList(*(Option(word, id=word) for word in self._words), markup=False)

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
    ChoiceScreen { align: center middle; }
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
        # Kept, not looked up: a refresh may end when the user has quit, and the screen is gone.
        self._tables: dict[str, DataTable[Text]] = {
            name: DataTable(id=f"{name}-table", cursor_type="row", zebra_stripes=True) for name in HEADINGS_OF_TABLE
        }
        self._tabs = TabbedContent(initial="objects")
        self._side = Static(id="side", markup=False)

    def compose(self) -> ComposeResult:
        yield Header()
        yield Input(placeholder="only paths with this in them; Enter", id="filter")
        with Horizontal():
            with self._tabs:
                for name, table in self._tables.items():
                    with TabPane(name.title(), id=name):
                        yield table
            yield self._side
        yield Footer()

    async def on_mount(self) -> None:
        for name, headings in HEADINGS_OF_TABLE.items():
            self._tables[name].add_columns(*headings)
        self.query_one("#filter", Input).display = False
        self.action_refresh()
        self.set_interval(REFRESH_SECONDS, self.action_refresh)
        self._tables["objects"].focus()

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
        """Lets the user choose among the actions that are allowed now, and requests the one chosen."""
        if not (path := self._selected_path()):
            return
        try:
            words = await self._list_choices(path)
            if not words:
                self._notify_user(
                    f"nothing is allowed on {short_path(path)} now; see: starter explain {path}", "warning"
                )
            elif word := await self.push_screen_wait(ChoiceScreen(f"what to do with {short_path(path)}", words)):
                await self._carry_out_choice(path, word)
        except Refused as refused:
            self._notify_user(f"{refused.message}\n{refused.hint}", "error")
        except RatchetError as error:
            self._notify_user(str(error), "error")
        self.action_refresh()

    async def _list_choices(self, path: str) -> list[str]:
        """Returns the decisions that a waiting action wants, or the allowed actions that need no options."""
        view = await self._asking.read_object(path)
        kind = registry.find_kind(view.kind)
        if view.phase in kind.waiting_statuses:
            return [signal.name for signal in kind.signals if signal.is_update]
        allowed = (await find_possible_actions(self._asking, view)).allowed
        return [verb.action for verb in allowed if not (verb.spec and required_options(verb.spec))]

    async def _carry_out_choice(self, path: str, word: str) -> None:
        """Sends a decision, or requests an action; what cannot be undone only after a question."""
        kind = registry.find_kind(kind_of(path))
        if word in (signal.name for signal in kind.signals):
            await send_signal(self._asking, path, word, {"reason": "tui"}, self._asking.message_signer.name)
            self._notify_user(f"{word} was sent to {short_path(path)}")
            return
        request = Request(path=path, action=word, reason="tui")
        question = await confirmation_question(self._asking, kind, request)
        if question and await self.push_screen_wait(ChoiceScreen(question, ["no", "yes"])) != "yes":
            self._notify_user("not confirmed: nothing was changed")
            return
        ticket = await self._asking.request_action(request)
        if ticket.admission.refusal:
            raise ticket.admission.refusal.to_error()
        self._notify_user(f"{word} of {short_path(path)}: admitted")

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
        self._tables["objects"].focus()
        self.action_refresh()

    async def on_data_table_row_highlighted(self) -> None:
        self._refresh_details()

    @work(exclusive=True, group="side")
    async def _refresh_details(self) -> None:
        await self._update_details()

    async def _update_details(self) -> None:
        """Shows status and history of the object under the cursor."""
        side = self._side
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
                if self._only in view.path or self._only in short_path(view.path):
                    found.append(view)
                if len(found) >= MAX_ROWS:
                    return found
        return found

    async def _read_actions(self) -> list[tuple[str, tuple[str, ...]]]:
        lines: list[tuple[str, tuple[str, ...]]] = []
        async for run in list_runs(self._asking.client, OPEN_RUNS):
            known = {pair.key.name: pair.value for pair in decode_typed_search_attributes(run.search_attributes)}
            action, phase, progress = (str(known.get(name, "")) for name in ("Action", "Phase", "Progress"))
            phase = "paused in Temporal" if run.status == PAUSED else phase
            since = _format_time(run.start_time.ToDatetime(UTC))
            lines.append((run.execution.workflow_id, (run.execution.workflow_id, action, phase, progress, since)))
            if len(lines) >= MAX_ROWS:
                break
        return lines

    def _fill_table(self, name: str, lines: Iterable[tuple[str, Sequence[str]]]) -> None:
        """Shows these rows in this order; the cursor stays on its object, or goes to the top if that is gone."""
        table = self._tables[name]
        wanted = {key: [Text(escape_controls(cell)) for cell in cells] for key, cells in lines}  # no markup
        if [str(key.value) for key in table.rows] == list(wanted):
            columns = [column.key for column in table.ordered_columns]
            for key, cells in wanted.items():
                for column, cell in zip(columns, cells, strict=True):
                    table.update_cell(key, column, cell)
            return
        selected = self._selected_key(table)
        table.clear()
        for key, cells in wanted.items():
            table.add_row(*cells, key=key)
        if selected in wanted:
            table.move_cursor(row=list(wanted).index(selected))

    def _selected_key(self, table: DataTable[Text]) -> str:
        if not table.row_count:
            return ""
        return str(table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value)

    def _selected_path(self) -> str | None:
        """Returns the path under the cursor of the active table."""
        key = self._selected_key(self._tables[self._tabs.active]).split(" ")[0]
        return key if key and "::" not in key and kind_of(key) in registry.KINDS else None

    def _notify_user(self, text: str, severity: str = "information") -> None:
        self.told = text = rewrite_as_typed(text)
        self.notify(escape_controls(text), severity=severity, markup=False)  # type: ignore[arg-type]


def _object_cells(view: ObjectView) -> tuple[str, ...]:
    doing = registry.find_kind(view.kind).format_target_action(view.target_action)
    return (view.kind, short_path(view.path), view.status, doing, _format_time(view.changed_at), view.error)


def _format_time(at: datetime) -> str:
    return f"{at:%m-%d %H:%M:%S}"
