"""Shell completion offers the names of existing objects, and nothing if nobody answers."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from datetime import UTC, datetime
from inspect import signature
from pathlib import Path
from typing import get_args

import pytest

from domain import registry
from domain.model import ObjectsView, ObjectView, ReadQuery
from starter import completion, session
from starter.app import build_cli_app
from starter.completion import find_names_within
from tests.cable import listening
from tests.test_cli.shell import Cli

PATIENT = "from starter import __main__, completion; completion.COMPLETION_SECONDS = 60; __main__.main()"


async def found(begun: str, *kinds: str) -> list[str]:
    """In a thread, as for a shell: the stack that answers runs in this very process."""
    return await asyncio.to_thread(find_names_within, 60, kinds or tuple(registry.KINDS), begun)


async def test_objects_are_found_by_how_their_names_begin(cli: Cli, mci: str, ns: str) -> None:
    vms = [f"{mci}/{name}" for name in ("back-1", "back-2", "data-1", "front-1", "front-2", "front-3")]
    assert await found(f"{ns}/", "mci") == [mci]
    assert await found(f"{ns}/w", "mci") == [mci]
    assert await found(f"{mci}/b", "vm") == vms[:2]
    assert await found(f"{ns}/x", "mci") == []
    assert await found(f"{mci}/front-1/deeper/still", "mci") == []
    assert await found(f"{ns}/-?", "mci") == []
    assert await found(f"{ns}/w") == [mci, *vms]
    assert await found(f"ns:{ns}:mci:w", "mci") == [f"ns:{ns}:mci:web"]


async def test_the_gateway_of_starter_up_is_asked_before_temporal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gateway:
        async def try_read(self, _name: str, query: ReadQuery, *_rest: object) -> ObjectsView:
            now = datetime.now(UTC)
            view = ObjectView(
                **{"path": f"{query.path}:mci:web", "kind": "mci", "epoch": 1, "created_at": now, "changed_at": now},
                **{"status": "Running", "phase": "Running"},
            )
            return ObjectsView(objects=[view])

    def unwanted() -> None:
        raise AssertionError("Temporal's SDK takes too long to load")

    monkeypatch.setattr(session, "find_own_gateway", lambda _environ: Gateway())
    monkeypatch.setattr(session, "open_client", unwanted)
    assert await found("default/", "mci") == ["default/web"]


async def test_the_commands_of_a_noun_look_for_their_own_kind(monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    asked: list[tuple[str, ...]] = []

    def noted(_seconds: float, kinds: tuple[str, ...], _begun: str) -> list[str]:
        asked.append(kinds)
        return []

    monkeypatch.setattr(completion, "find_names_within", noted)
    for words in ("mci suspend d", "mci create d", "mci continue d", "mci status d", "lease delete d"):
        assert (await cli("__complete", *words.split())).code == 0
    assert asked == [("mci",)] * 4 + [("lease",)]
    await cli("__complete", "explain", "d")
    assert asked[-1] == tuple(registry.KINDS)


def test_the_command_line_can_be_built_any_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    def told(typed: str) -> int:
        monkeypatch.setenv("RATCHET_COMMAND", typed)  # it is built once for each
        command = build_cli_app()["mci"]["status"].default_command
        assert command
        return len(get_args(signature(command).parameters["target"].annotation))

    assert told("once") == told("twice")


async def test_kinds_are_offered_by_name(cli: Cli) -> None:
    ran = await cli("__complete", "states", "")
    assert set(registry.KINDS) <= set(ran.out.split())


async def test_without_a_server_nothing_is_offered_and_nothing_is_said(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path))
    ran = await cli("__complete", "mci", "suspend", "de")
    assert (ran.code, ran.out.split(), ran.err) == (0, ["begin"], "")


async def test_a_server_that_takes_its_time_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nobody(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()  # takes the call and never answers

    async with listening(nobody) as address:
        monkeypatch.setenv("TEMPORAL_ADDRESS", address)
        assert await asyncio.to_thread(find_names_within, 0.5, ["mci"], "") == []


@pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash on this machine")
async def test_bash_completes_with_the_script_that_is_installed(cli: Cli, mci: str, ns: str, tmp_path: Path) -> None:
    script = tmp_path / "completion.bash"
    script.write_text(build_cli_app().generate_completion(shell="bash"))
    ours = tmp_path / "starter"
    ours.write_text(f"#!{sys.executable}\n{PATIENT}\n")
    ours.chmod(0o755)
    words = f'COMP_WORDS=(starter mci suspend {ns}/w); COMP_CWORD=3; _starter; printf "%s\\n" "${{COMPREPLY[@]}}"'
    process = await asyncio.create_subprocess_exec(
        *("bash", "-c", f"source {script}; {words}"),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )
    said, _ = await process.communicate()
    assert said.decode().split() == [mci]
