"""Random command lines without a server: an exit code of ours and a message, never a traceback."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from time import monotonic

import pytest
from cyclopts import App
from hypothesis import strategies as st

from starter.app import build_cli_app
from starter.command import run_command
from starter.errors import ExitCode
from tests.fuzz.inputs import SEED, drawn, texts
from tests.patience import PATIENCE

SECONDS = 120  # for all of the words: each line makes the whole command line anew
MET = {ExitCode.USAGE, ExitCode.UNREACHABLE}  # by words that are wrong in themselves, and by words that are not
# These run until they are told to stop, or start other processes.
LASTING = {("up",), ("demo",), ("worker",), ("codec",), ("tui",), ("crm", "run")}
FLAGS = (
    *("-o", "json", "yaml", "--output", "-f", "-", "--file", "/nowhere", "--force", "--yes", "--no-wait", "--debug"),
    *("--prefix", "--limit", "-n", "--profile", "--request-id", "--reason", "--key", "--nodes", "--version", "--watch"),
)


def commands(app: App, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name in app:
        if not name.startswith("-"):
            yield (*before, name)
            yield from commands(app[name], (*before, name))


COMMANDS = sorted(command for command in commands(build_cli_app()) if command not in LASTING)


@pytest.fixture(autouse=True)
def _no_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith(("TEMPORAL_", "RATCHET_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


class Hang(Exception):
    """No answer came."""


@contextlib.contextmanager
def answering() -> Iterator[None]:
    """A command that hangs is stopped by an unknown error, which the command reports as a bug."""

    def stop(*_: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(PATIENCE)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


async def test_any_words_get_an_answer(many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    word = st.one_of(texts, st.sampled_from(FLAGS), st.sampled_from([name for command in COMMANDS for name in command]))
    lines = st.tuples(st.sampled_from(COMMANDS), st.lists(word, max_size=5))
    some = drawn(lines, 70 * many)  # thousands take a minute: that is not the time for trying them
    Random(SEED).shuffle(some)  # the first that are drawn are the simplest: few of them look for a server
    some[:0] = [(command, []) for command in COMMANDS]  # each of them alone: some look for a server, or read the store
    told: set[ExitCode] = set()
    until = monotonic() + SECONDS
    for command, rest in some:
        if monotonic() > until and told >= MET:
            break
        words = [*command, *(each for each in rest if (*command, each) not in LASTING)]
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"{")))
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), answering():
            code = await run_command([word for word in words if word != "--debug"])
        assert code in list(ExitCode), words
        assert "a bug in this program" not in err.getvalue(), (words, err.getvalue())
        assert "Traceback" not in err.getvalue() + out.getvalue(), words
        told.add(ExitCode(code))
    assert told >= MET, "the words were of many kinds"
