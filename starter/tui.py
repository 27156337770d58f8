"""`starter tui`: objects, running actions, locks and history on one screen, with actions on keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from temporalio.converter import decode_typed_search_attributes
from textual import events, work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widgets import DataTable, Footer, Header, Input, Static, TabbedContent, TabPane

from activities.runs import OPEN_RUNS, PAUSED, list_runs
from client.explaining import find_possible_actions
from client.sending import send_signal
from domain import registry, wire
from domain.errors import RatchetError, Refused
from domain.locks import LocksView
from domain.model import ObjectView, ReadQuery, Request
from domain.paths import kind_of, short_path
from domain.statetable import NONE
from starter.confirmation import confirmation_question
from starter.dialogs import ChoiceScreen, FilterInput, HelpScreen
from starter.options import required_options
from starter.terminal import escape_controls, rewrite_commands

if TYPE_CHECKING:
    from client.actions import ActionClient

REFRESH_SECONDS = 1.0  # seconds between polls
MAX_ROWS = 500  # the most objects on the screen; `starter list` shows all

HEADINGS_OF_TABLE = {
    "objects": ("KIND", "NAME", "STATUS", "TARGET", "CHANGED", "ERROR"),
    "running": ("PATH", "ACTION", "PHASE", "PROGRESS", "SINCE"),
    "locks": ("PATH", "MODE", "ACTION", "OWNER", "SINCE"),
}

HELP = """\
arrows  move the cursor          Tab  to the tabs: objects, running actions, locks
a       act on the object under the cursor: what is allowed now and needs no options
c       cancel the action that runs on it: it cleans up and ends
/       show only paths that contain a text; Enter applies it, Escape shows all again
r       read again now; the screen does so every second
?       this help                q    quit

What cannot be undone is asked for once more. A dialog is about the object in its title.
docs/tui.md says more."""


class Tui(App[None]):
    """The full-screen view. Its actions are the same requests as the CLI's."""

    TITLE = "ratchet"
    ENABLE_COMMAND_PALETTE = False  # it would open over a dialog
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (90, "-wide")]
    CSS = """
    TabbedContent { width: 1fr; }
    .-narrow #side { display: none; }
    #side { width: 45%; border-left: solid $primary; padding: 0 1; }
    #choice { width: 84; max-width: 95%; height: auto; max-height: 95%; }
    #choice { border: thick $primary; background: $surface; padding: 1; }
    #choice Label { width: 1fr; }
    ChoiceScreen, HelpScreen { align: center middle; }
    DataTable { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "act", "action"),
        Binding("c", "cancel", "cancel"),
        Binding("slash", "find", "filter"),
        Binding("r", "refresh", "refresh"),
        Binding("question_mark", "help", "help", key_display="?"),
        Binding("q", "quit", "quit"),
    ]

    def __init__(self, client: ActionClient) -> None:
        super().__init__()
        self._asking = client
        self._filter = ""
        self._objects: list[ObjectView] = []  # as last read
        self._looking = False
        self.told = ""  # the last notification, for tests
        # Kept, not looked up: a refresh may end when the user has quit, and the screen is gone.
        self._tables: dict[str, DataTable[Text]] = {
            name: DataTable(id=f"{name}-table", cursor_type="row", zebra_stripes=True) for name in HEADINGS_OF_TABLE
        }
        self._tabs = TabbedContent(initial="objects")
        self._side = Static(id="side", markup=False)
        self._field = FilterInput(self._apply_filter)

    def compose(self) -> ComposeResult:
        yield Header()
        yield self._field
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
        self._field.display = False
        self.action_refresh()
        self.set_interval(REFRESH_SECONDS, self.action_refresh)
        self._tables["objects"].focus()

    async def on_event(self, event: events.Event) -> None:
        """Handles each key to its end before the next one.

        Textual passes a key from widget to widget through their queues. Keys typed quickly would overtake what the ones
        before them changed: the cursor, the filter, the dialog that opens.
        """
        if not isinstance(event, events.Key) or event.is_forwarded:
            await super().on_event(event)
        elif isinstance(self.screen, ChoiceScreen) and self.screen.buffer_key(event.key):
            return
        elif isinstance(self.focused, Input) and event.is_printable:
            self.focused.replace(event.character or "", *self.focused.selection)
        elif bound := self.screen.active_bindings.get(event.key):
            await self.run_action(bound.binding.action, bound.node)
        else:
            await super().on_event(event)

    @work(group="refresh")
    async def action_refresh(self) -> None:
        """Refreshes all tables; the cursor stays on its object. Refreshes do not overlap."""
        if self._looking:
            return
        self._looking = True
        try:
            await self._read_objects()
            self._show_objects()
            self._fill_table("running", await self._read_actions())
            held = (await self._asking.run_query(wire.READ_LOCKS, ReadQuery(), LocksView)).locks
            lines = [(view.path, view.mode, view.action, view.owner, _format_time(view.since)) for view in held]
            self._fill_table("locks", [(f"{line[0]} {line[3]}", line) for line in lines])
            await self._update_details()
        except RatchetError as error:
            self._notify_user(str(error), "error")
        finally:
            self._looking = False

    def action_act(self) -> None:
        """Asks what to do with the object that is under the cursor now."""
        self._open_dialog("what to do with {}: reading what is allowed", self._choose_action)

    @work(group="act")
    async def _choose_action(self, path: str, dialog: ChoiceScreen) -> None:
        """Lets the user choose among the actions that are allowed now, and requests the one chosen."""
        try:
            words = await self._list_choices(path)
            if not words:
                self._notify_user(
                    f"nothing is allowed on {short_path(path)} now; see: starter explain {path}", "warning"
                )
            elif word := await dialog.ask(f"what to do with {short_path(path)}", words):
                await self._carry_out_choice(path, word, dialog)
        except Refused as refused:
            self._notify_user(f"{refused.message}\n{refused.hint}", "error")
        except RatchetError as error:
            self._notify_user(str(error), "error")
        finally:
            dialog.close()
        self.action_refresh()

    async def _list_choices(self, path: str) -> list[str]:
        """Returns the decisions that a waiting action wants, or the allowed actions that need no options."""
        view = await self._asking.read_object(path)
        kind = registry.find_kind(view.kind)
        if view.phase in kind.waiting_statuses:
            return [signal.name for signal in kind.signals if signal.is_update]
        allowed = (await find_possible_actions(self._asking, view)).allowed
        return [verb.action for verb in allowed if not (verb.spec and required_options(verb.spec))]

    async def _carry_out_choice(self, path: str, word: str, dialog: ChoiceScreen) -> None:
        """Sends a decision, or requests an action; what cannot be undone only after a question."""
        kind = registry.find_kind(kind_of(path))
        if word in (signal.name for signal in kind.signals):
            await send_signal(self._asking, path, word, {"reason": "tui"}, self._asking.message_signer.name)
            self._notify_user(f"{word} was sent to {short_path(path)}")
            return
        request = Request(path=path, action=word, reason="tui")
        question = await confirmation_question(self._asking, kind, request)
        if question and await dialog.ask(question, ["no", "yes"]) != "yes":
            self._notify_user("not confirmed: nothing was changed")
            return
        ticket = await self._asking.request_action(request)
        if ticket.admission.refusal:
            raise ticket.admission.refusal.to_error()
        self._notify_user(f"{word} of {short_path(path)}: admitted")

    def action_cancel(self) -> None:
        """Asks whether to cancel the action that runs on the object that is under the cursor now."""
        self._open_dialog("cancel what runs on {}?", self._cancel_action)

    def _open_dialog(self, title: str, work: Callable[[str, ChoiceScreen], object]) -> None:
        """Opens a dialog for the object that is under the cursor now, whatever the tables show later."""
        if path := self._selected_path():
            dialog = ChoiceScreen(title.format(short_path(path)))
            self.push_screen(dialog)
            work(path, dialog)
        else:
            self._notify_user("no object is under the cursor", "warning")

    @work(group="act")
    async def _cancel_action(self, path: str, dialog: ChoiceScreen) -> None:
        try:
            if await dialog.ask(f"cancel what runs on {short_path(path)}?", ["yes"]) == "yes":
                await self._asking.cancel_action(path)
                self._notify_user(f"asked {short_path(path)} to end what it does")
        except Exception as error:  # Temporal's message: the action has ended, or the server cannot be reached
            self._notify_user(str(error), "warning")
        finally:
            dialog.close()

    def action_help(self) -> None:
        self.push_screen(HelpScreen(HELP))

    def action_find(self) -> None:
        self._field.display = True
        self.screen.set_focus(self._field)

    def _apply_filter(self, words: str) -> None:
        """Filters what was read before any later key is handled; then reads again, because there may be more."""
        self._filter = words
        self._field.display = bool(words)
        self._tabs.active = "objects"
        self.screen.set_focus(self._tables["objects"])
        self._show_objects()
        self.action_refresh()

    async def on_data_table_row_highlighted(self) -> None:
        self._refresh_details()

    @work(exclusive=True, group="side")
    async def _refresh_details(self) -> None:
        await self._update_details()

    async def _update_details(self) -> None:
        """Shows status and history of the object under the cursor."""
        if not (path := self._selected_path()):
            self._side.update("")
            return
        try:
            view = await self._asking.read_object(path)
            lines = await self._asking.read_history(path, 30)
            told = [path, view.status, *([view.error] if view.error else []), ""]
            word = registry.find_kind(view.kind).display_own_status
            for line in reversed(lines):
                source, to = ("-" if status == NONE else word(status) for status in (line.source, line.to))
                told.append(f"{_format_time(line.at)} {line.action}: {source} → {to} {line.message}")
        except RatchetError as error:
            told = [str(error)]
        if path == self._selected_path():  # else the cursor has moved on
            self._side.update(escape_controls("\n".join(told)))

    async def _read_objects(self) -> None:
        """Reads the objects that match the filter; once more if it was changed meanwhile."""
        words = None
        while words != self._filter:
            words = self._filter
            found = await self._find_objects(words)
        self._objects = found

    async def _find_objects(self, words: str) -> list[ObjectView]:
        found: list[ObjectView] = []
        for kind in registry.KINDS:
            async for view in self._asking.iterate_objects(kind):
                if _matches(view, words):
                    found.append(view)
                if len(found) >= MAX_ROWS:
                    return found
        return found

    def _show_objects(self) -> None:
        shown = [view for view in self._objects if _matches(view, self._filter)]
        self._fill_table("objects", [(view.path, _object_cells(view)) for view in shown])

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
        self.told = text = rewrite_commands(text)
        self.notify(escape_controls(text), severity=severity, markup=False)  # type: ignore[arg-type]


def _matches(view: ObjectView, words: str) -> bool:
    return words in view.path or words in short_path(view.path)


def _object_cells(view: ObjectView) -> tuple[str, ...]:
    kind = registry.find_kind(view.kind)
    doing = "" if view.target_action == NONE else kind.format_target_action(view.target_action)
    return (view.kind, short_path(view.path), view.status, doing, _format_time(view.changed_at), view.error)


def _format_time(at: datetime) -> str:
    return f"{at:%m-%d %H:%M:%S}"
