"""The dialogs of the full screen. A dialog takes every key after the one that opens it: none reaches the tables."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Label, OptionList, Static
from textual.widgets.option_list import Option

from starter.terminal import escape_controls


class ChoiceList(OptionList):
    """Tells its screen at once what was chosen: a message would arrive after keys that were typed later."""

    def action_select(self) -> None:
        assert isinstance(self.screen, ChoiceScreen)
        if self.highlighted is not None:
            self.screen.choose(self.get_option_at_index(self.highlighted).id)


class ChoiceScreen(ModalScreen[None]):
    """One question after the other about one object, until the request is sent or Escape closes it.

    Keys that are typed while the first question is read are used when it is shown: the same keys mean the same, however
    slow the worker answers. After that, only keys that are typed while a question is shown answer it.
    """

    AUTO_FOCUS = None
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "close", "back")]

    def __init__(self, title: str) -> None:
        super().__init__()
        self._title = Label(escape_controls(title), markup=False)
        self._words = ChoiceList(markup=False)
        self._keys: list[str] | None = []  # typed before the first question was shown
        self._answer: asyncio.Future[str | None] | None = None  # of the question that is shown
        self._is_closed = False

    def compose(self) -> ComposeResult:
        with Vertical(id="choice"):
            yield self._title
            yield self._words

    def buffer_key(self, key: str) -> bool:
        """Takes a key that came before its question; False if a question is shown, or it is the key that closes."""
        if self._answer is not None or key == "escape":
            return False
        if self._keys is not None:
            self._keys.append(key)
        return True

    async def ask(self, title: str, words: Sequence[str]) -> str | None:
        """Shows a question; returns the word that is chosen, or None if the dialog is closed."""
        if self._is_closed:
            return None
        self._title.update(escape_controls(title))
        self._words.clear_options()
        self._words.add_options([Option(word, id=word) for word in words])
        self._words.highlighted = 0
        self.set_focus(self._words)
        self._answer = asyncio.get_running_loop().create_future()
        answer, keys, self._keys = self._answer, self._keys or [], None
        for key in keys:
            if self._answer is answer and (bound := self.active_bindings.get(key)):
                await self.app.run_action(bound.binding.action, bound.node)
        return await answer

    def choose(self, word: str | None) -> None:
        """Answers the question that is shown; until the next one is, keys do nothing."""
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_result(word)

    def action_close(self) -> None:
        self.choose(None)
        self.close()

    def close(self) -> None:
        if not self._is_closed and self.is_current:  # not current: the user has quit
            self.dismiss()
        self._is_closed = True


class HelpScreen(ModalScreen[None]):
    """Shows what each key does; the keys that end it are bound here."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,q,enter", "dismiss(None)", "back"),
    ]

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        with Vertical(id="choice"):
            yield Static(self._text, markup=False)


class FilterInput(Input):
    """The filter. Enter applies it at once, before any key that was typed later; Escape shows all again."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "show_all", "show all")]

    def __init__(self, apply: Callable[[str], None]) -> None:
        super().__init__(placeholder="only paths with this in them; Enter", id="filter")
        self._apply = apply

    async def action_submit(self) -> None:
        self._apply(self.value.strip())

    def action_show_all(self) -> None:
        self.value = ""
        self._apply("")
