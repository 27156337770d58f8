"""What the command line loads: nothing but its own lines for `starter --help`, and one family for a command."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cyclopts import App
from rich.console import Console

from docs import firstlines, generate
from domain import registry
from domain.paths import build_path, short_path
from starter import kinds, reads
from starter.app import build_cli_app
from starter.errors import ExitCode
from starter.extensions import find_extension
from starter.families import all_extensions, build_family_app
from starter.firstlines import FAMILY_OF_COMMAND, SCOPE_OF_STATUS
from starter.helppage import draw_help_page, print_top_level
from starter.shortcut import parse_status_command
from starter.toplevel import OBJECTS
from starter.usage import run_app
from tests.patience import PATIENCE


def test_the_lines_of_help_are_those_of_the_commands() -> None:
    assert firstlines.FILE.read_text() == firstlines.first_lines_module(build_cli_app()), f"run: {generate.COMMAND}"


def printed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines on stdout: rich leaves a space where it wraps."""
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("width", [60, 80, 100, 200])
@pytest.mark.parametrize("words", [[], ["--help"], ["-h"], ["--version"]], ids=" ".join)
def test_help_without_the_parser_is_the_whole_app_s(
    words: list[str], width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    build_cli_app()(words, console=Console())  # the app's own keeps the width of its first page
    whole = printed(capsys)
    assert print_top_level(words)
    assert printed(capsys) == whole
    assert any(whole)


def test_help_names_the_program_as_its_user_types_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RATCHET_COMMAND", "python3 run.py")
    build_cli_app()(["--help"], console=Console())
    whole = printed(capsys)
    assert print_top_level([])
    assert printed(capsys) == whole
    assert whole[0] == "Usage: python3 run.py COMMAND"


def test_help_fits_into_a_narrow_terminal() -> None:
    assert max(map(len, draw_help_page(40).splitlines())) == 40


def test_help_with_colors_says_the_same() -> None:
    plain, colored = draw_help_page(80), draw_help_page(80, colored=True)
    assert "\x1b[36mmci" in colored
    assert re.sub(r"\x1b\[\d+m", "", colored) == plain


def test_help_is_read_by_those_who_have_only_ascii() -> None:
    draw_help_page(80, is_utf=False).encode("ascii")
    ascii_only = os.environ | {"PYTHONIOENCODING": "ascii"}
    shown = subprocess.check_output([sys.executable, "-m", "starter"], env=ascii_only, timeout=PATIENCE)
    assert b"+- Objects -" in shown


@pytest.mark.parametrize("words", [["mci"], ["mci", "--help"], ["help"], ["--debug", "--help"], ["--profile", "x"]])
def test_what_names_a_command_is_left_to_the_app(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert not print_top_level(words)
    assert not capsys.readouterr().out


def loaded_modules(*words: str, code: int = 0, **variables: str) -> set[str]:
    """The packages that a command loads, from the interpreter's own list."""
    process = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "starter", *words],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert process.returncode == code, process.stderr
    rows = (line.split("|") for line in process.stderr.splitlines() if line.startswith("import time:"))
    return {row[2].strip() for row in rows}


def test_help_loads_no_parser_no_models_and_no_event_loop() -> None:
    loaded = {name.partition(".")[0] for name in loaded_modules("--help")}
    heavy = {"asyncio", "client", "cyclopts", "domain", "logging", "pydantic", "rich", "sqlalchemy", "temporalio"}
    assert "starter" in loaded, "the list is read"
    assert not loaded & {*heavy, "structlog", "yaml"}


def test_a_command_of_a_family_loads_no_other_family() -> None:
    loaded = {".".join(name.split(".")[:2]) for name in loaded_modules("mci", "status", "--help")}
    assert {"domain.mci", "starter.mci"} <= loaded
    others = {f"{layer}.{family}" for layer in ("domain", "starter") for family in registry.FAMILIES if family != "mci"}
    assert not loaded & {*others, "domain.ports", "starter.app", "sqlalchemy", "structlog", "temporalio", "yaml"}


def described(app: App) -> dict[str, object]:
    """The commands of a noun: what each says, and takes."""
    if app.default_command:
        return {"": (app.help, app.show, str(inspect.signature(app.default_command)).partition(" at 0x")[0])}
    own = (name for name in app if not name.startswith("-"))
    return {f"{name} {more}": what for name in own for more, what in described(app[name]).items()}


@pytest.mark.parametrize("family", registry.FAMILIES)
def test_a_family_s_commands_are_the_same_without_the_others(family: str) -> None:
    whole, alone = build_cli_app(), build_family_app(family)
    names = [name for name, owner in FAMILY_OF_COMMAND.items() if owner == family]
    assert names
    for name in names:
        assert described(alone[name]) == described(whole[name])


def test_a_read_by_temporal_loads_no_keys_and_no_files(tmp_path: Path) -> None:
    """Temporal is not there; what is loaded to find that out is what a read needs."""
    words = ("mci", "status", "default/web")
    loaded = loaded_modules(
        *words, code=ExitCode.UNREACHABLE, TEMPORAL_ADDRESS="127.0.0.1:1", RATCHET_HOME=str(tmp_path)
    )
    names = {name.partition(".")[0] for name in loaded}
    assert "temporalio" in names
    assert not names & {"cryptography", "joserfc", "sqlalchemy", "structlog", "yaml"}


OWN_STATUS = [kind for extension in all_extensions().values() for kind in extension.own_status]


@pytest.mark.parametrize("options", [[], ["-o", "json"], ["--output", "yaml"]], ids=" ".join)
@pytest.mark.parametrize("kind", SCOPE_OF_STATUS)
async def test_a_plain_status_command_is_what_the_parser_makes_of_it(
    kind: str, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    printed: list[tuple[str, str]] = []

    async def note_status(path: str, output: str) -> ExitCode:
        printed.append((path, output))
        return ExitCode.DONE

    monkeypatch.setattr(reads, "print_status", note_status)
    scope = registry.KINDS[kind].scope
    words = [kind, "status", short_path(build_path(scope, [f"{word}-1" for word in scope])), *options]
    assert await run_app(words) == ExitCode.DONE
    assert printed == [parse_status_command(words)]


@pytest.mark.parametrize("kind", OWN_STATUS)
def test_a_status_command_of_a_family_s_own_is_left_to_the_parser(kind: str) -> None:
    family = FAMILY_OF_COMMAND[kind]
    usual = kinds.build_kind_app(registry.KINDS[kind], OBJECTS, find_extension(family))["status"].default_command
    command = build_family_app(family)[kind]["status"].default_command
    assert command.__doc__ != usual.__doc__, "it is the status of every kind"
    words = [kind, "status", "/".join(f"{word}-1" for word in registry.KINDS[kind].scope)]
    assert parse_status_command(words) is None


@pytest.mark.parametrize(
    "words",
    [
        "mci status",
        "mci list default/web",
        "mci status -o json",
        "mci status --help",
        "mci status default/web --watch",
        "mci status default/web --refresh",
        "mci status default/web -o xml",
        "mci status default/web -o json --watch",
        "mci status default/web/front-1",
        "crm status berlin",
        "nothing status berlin",
    ],
)
def test_other_words_are_left_to_the_parser(words: str) -> None:
    assert parse_status_command(words.split()) is None
