"""`--watch`: which commands have it, and what they print."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import nullcontext

import pytest
from cyclopts import App

from domain.errors import Category, Refused
from starter import terminal, watch
from starter.app import build_cli_app
from starter.errors import ExitCode
from tests.cases import every_case

# Commands that show something and are not watched: why.
ONCE = {
    "cloud fault list": "only we change it",
    "connections": "from a file, which is read when workers start",
    "doctor": "a check, with a verdict as its exit code",
    "verify": "a check, with a verdict as its exit code; it reads everything",
    "heal": "it acts",
    "heal report": "sweeps are minutes apart",
    "check": "an answer to one question",
    "wait": "it waits by itself, and shows how far the action is",
    "attach": "as wait",
    "states": "the law does not change",
    "orphans list": "it asks every cloud, twice where something is found",
    "system diff": "two definitions that do not change",
    "policy test": "a check of two files, with a verdict as its exit code",
    "policy replay": "what was recorded does not change",
    "system logs": "the last lines, at once",
    "system show": "what was deployed, to be written into a file",
    "whoami": "one's own name and rights",
}
ACTING = {"cancel", "cloud fault add", "cloud fault clear", "cloud fault set", "mci continue", "mci withdraw"}
ACTING |= {"mci reconcile", "queue stop", "queue terminate"}


def shown(app: App, words: tuple[str, ...] = ()) -> Iterator[tuple[str, inspect.Signature]]:
    """Commands that print something that they found. Those of actions have their output among the options."""
    for name in app:
        if name.startswith("-"):
            continue
        command = app[name]
        if command.default_command:
            yield " ".join((*words, name)), inspect.signature(command.default_command)
        yield from shown(command, (*words, name))


SHOWN = {words: taken.parameters for words, taken in shown(build_cli_app()) if "output" in taken.parameters}


@every_case("words", SHOWN)
def test_whatever_can_change_under_the_eyes_can_be_watched(words: str) -> None:
    assert ("watch" in SHOWN[words]) != (words in {*ONCE, *ACTING}), words


def test_trees_and_explanations_can_be_watched_too() -> None:
    taken = dict(shown(build_cli_app()))
    for words in ("cloudlet status", "system status", "system graph", "lease show", "explain", "mci status", "history"):
        assert "watch" in taken[words].parameters, words
    assert set(taken) > {*ONCE, *ACTING}, "a reason for a command that is gone"


async def test_it_is_printed_again_when_it_has_changed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(watch, "WATCH_SECONDS", 0)
    monkeypatch.setattr(watch, "shared_client", nullcontext)
    seen = iter(["Creating", "Creating", "Running", "Running"])

    async def look() -> ExitCode:
        if (status := next(seen, None)) is None:
            raise Refused(Category.NOT_FOUND, "it is gone")
        terminal.print_data(status)
        terminal.print_message(f"now {status}")
        return ExitCode.DONE

    with pytest.raises(Refused, match="it is gone"):
        await watch.run_once_or_watch(True, look)
    printed = capsys.readouterr()
    assert printed.out == "Creating\n\nRunning\n"
    assert printed.err == "now Creating\nnow Running\n"
