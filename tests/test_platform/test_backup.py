"""Backup and restore as docs/operations.md says: Temporal first, then the inventory, while everything runs."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from client.actions import ActionClient, Ticket
from domain import wire
from domain.invariants import VerificationReport
from domain.mci.messages import CONTINUE, HoldDecision
from domain.model import ActionResult, ReadQuery, Request
from starter.mci import requests
from tests.patience import PATIENCE
from tests.user import spec
from workers.datafolder import check_data_folder
from workers.process import run_stack
from workers.settings import WorkerSettings

WEB, LAUNCH = "ns:default:mci:web", "ns:default:mci:launch"


def copy(home: Path, to: Path, *files: str) -> None:
    """As `sqlite3 FILE ".backup COPY"` does it, while others write."""
    to.mkdir(exist_ok=True)
    for file in files:
        with closing(sqlite3.connect(home / file)) as source, closing(sqlite3.connect(to / file)) as target:
            source.backup(target)


def test_the_stack_accepts_a_backup_that_is_made_as_the_page_says(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    commands = page.split("The embedded stack:\n\n```sh\n")[1].split("```")[0]
    if not shutil.which("sqlite3"):
        pytest.skip("needs SQLite's command line tool")
    (tmp_path / ".ratchet").mkdir()
    for name in ("temporal.db", "inventory.db", "cloud.db"):
        with closing(sqlite3.connect(tmp_path / ".ratchet" / name)) as database:
            database.execute("CREATE TABLE kept (number INTEGER)")
    subprocess.run(["sh", "-ec", f"umask 022\n{commands}"], cwd=tmp_path, check=True)
    check_data_folder(tmp_path / "backup")
    assert len(list((tmp_path / "backup").iterdir())) == 3


async def ask(client: ActionClient, path: str, action: str, **more: object) -> Ticket:
    ticket = await client.request_action(Request.model_validate({"path": path, "action": action, **more}))
    assert ticket.admission.refusal is None, ticket.admission.refusal
    return ticket


async def do(client: ActionClient, path: str, action: str, **more: object) -> str:
    outcome = await client.wait_for_outcome(path, (await ask(client, path, action, **more)).run)
    assert outcome.result is ActionResult.SUCCEEDED, outcome
    return outcome.status


async def promises_are_kept(client: ActionClient) -> None:
    found = await client.run_query(wire.VERIFY_ACTIVITY, ReadQuery(), VerificationReport, seconds=60)
    assert found.findings == []


async def test_what_ended_between_the_two_copies_is_not_done_again(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    async with run_stack(WorkerSettings(home=first, simulated_latency=0)) as running:
        client = ActionClient(running.client)
        await do(client, WEB, "create", spec=spec(2, ["aws"]))
        held = await ask(client, LAUNCH, "create", spec={**spec(1, ["gcp"]), "option": "hold"})
        async with asyncio.timeout(PATIENCE):
            while not (seen := await client.try_read_progress(LAUNCH, held.run)) or seen.phase != "Prepared":
                await asyncio.sleep(0.05)
        copy(first, second, "temporal.db")
        await requests.send_decision(client, LAUNCH, CONTINUE, HoldDecision())
        assert (await client.wait_for_outcome(LAUNCH, held.run)).status == "Running:1 (R:1/1)"
        assert await do(client, WEB, "suspend") == "Suspended:2 (R:0/2)"
        copy(first, second, "inventory.db", "cloud.db")
        assert await do(client, WEB, "resume") == "Running:2 (R:2/2)"  # in neither copy

    async with run_stack(WorkerSettings(home=second, simulated_latency=0)) as running:
        client = ActionClient(running.client)
        await promises_are_kept(client)
        assert await do(client, WEB, "resume") == "Running:2 (R:2/2)"
        # Temporal believes that it still holds; the inventory knows better, and keeps the outcome that there was.
        await client.cancel_action(LAUNCH)
        assert (await client.wait_for_outcome(LAUNCH)).result is ActionResult.SUCCEEDED
        assert await do(client, LAUNCH, "suspend") == "Suspended:1 (R:0/1)"
        await promises_are_kept(client)
