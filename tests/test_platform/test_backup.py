"""Backup and restore as docs/operations.md says: Temporal first, then the inventory, while everything runs."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

from client.actions import ActionClient, Ticket
from domain import wire
from domain.mci.messages import CONTINUE, Decision
from domain.model import Query, Request, Result, Verification
from starter.mci import steering
from tests.patience import PATIENCE
from tests.user import spec
from workers.process import stack
from workers.settings import Settings

WEB, LAUNCH = "ns:default:mci:web", "ns:default:mci:launch"


def copy(home: Path, to: Path, *files: str) -> None:
    """As `sqlite3 FILE ".backup COPY"` does it, while others write."""
    to.mkdir(exist_ok=True)
    for file in files:
        with closing(sqlite3.connect(home / file)) as source, closing(sqlite3.connect(to / file)) as target:
            source.backup(target)


async def ask(asking: ActionClient, path: str, action: str, **more: object) -> Ticket:
    ticket = await asking.ask(Request.model_validate({"path": path, "action": action, **more}))
    assert ticket.admission.refusal is None, ticket.admission.refusal
    return ticket


async def do(asking: ActionClient, path: str, action: str, **more: object) -> str:
    outcome = await asking.outcome(path, (await ask(asking, path, action, **more)).run)
    assert outcome.result is Result.SUCCEEDED, outcome
    return outcome.status


async def promises_are_kept(asking: ActionClient) -> None:
    found = await asking.read(wire.VERIFY, Query(), Verification, seconds=60)
    assert found.findings == []


async def test_what_ended_between_the_two_copies_is_not_done_again(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    async with stack(Settings(home=first, simulated_latency=0)) as running:
        asking = ActionClient(running.client)
        await do(asking, WEB, "create", spec=spec(2, ["aws"]))
        held = await ask(asking, LAUNCH, "create", spec={**spec(1, ["gcp"]), "option": "hold"})
        async with asyncio.timeout(PATIENCE):
            while (await asking.progress(LAUNCH)).phase != "Prepared":
                await asyncio.sleep(0.05)
        copy(first, second, "temporal.db")
        await steering.decide(asking, LAUNCH, CONTINUE, Decision())
        assert (await asking.outcome(LAUNCH, held.run)).status == "Running:1 (R:1/1)"
        assert await do(asking, WEB, "suspend") == "Suspended:2 (R:0/2)"
        copy(first, second, "inventory.db", "cloud.db")
        assert await do(asking, WEB, "resume") == "Running:2 (R:2/2)"  # in neither copy

    async with stack(Settings(home=second, simulated_latency=0)) as running:
        asking = ActionClient(running.client)
        await promises_are_kept(asking)
        assert await do(asking, WEB, "resume") == "Running:2 (R:2/2)"
        # Temporal believes that it still holds; the inventory knows better, and keeps the outcome that there was.
        await asking.cancel(LAUNCH)
        assert (await asking.outcome(LAUNCH)).result is Result.SUCCEEDED
        assert await do(asking, LAUNCH, "suspend") == "Suspended:1 (R:0/1)"
        await promises_are_kept(asking)
