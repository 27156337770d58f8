"""The pictures of the README and of docs/, made from the running program. Run: python -m docs.pictures

It starts a stack of its own in a temporary folder. Those of the Web UI need a Chromium on this machine.
"""

from __future__ import annotations

import asyncio
import io
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from textual.widgets import DataTable

from client.actions import ActionClient, Ticket
from docs.generate import ROOT
from domain import wire
from domain.faults import Fault, FaultKind, FaultScript
from domain.model import ReadQuery, Request, TreeView
from starter import tree
from starter.tui import Tui
from tests.browser import chromium, installed
from workers.process import run_stack
from workers.settings import WorkerSettings

FOLDER = ROOT / "docs"
WEB, LAUNCH = "ns:default:mci:web", "ns:default:mci:launch"


async def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        async with run_stack(WorkerSettings(home=Path(home), simulated_latency=1)) as running:
            client = ActionClient(running.client, running.ui)
            await create_pictured_mcis(client)
            await draw_full_screen(client)
            if installed():
                await draw_web_ui(running.ui)
            else:
                sys.stdout.write("no Chromium here: the pictures of the Web UI stay as they are\n")
            await draw_progress_lines(client)


async def create_pictured_mcis(client: ActionClient) -> None:
    """An MCI with a past, and one that holds."""
    await run_to_end(client, WEB, "create", reason="the shop opens", spec=read_example_spec("mci-demo"))
    await run_to_end(client, WEB, "suspend", reason="closed for the night")
    await request_or_fail(
        client, LAUNCH, "create", reason="the release of nine o'clock", spec=read_example_spec("mci-hold")
    )
    await run_to_end(client, WEB, "resume", reason="good morning")
    async with asyncio.timeout(60):
        while (await client.read_progress(LAUNCH)).phase != "Prepared":  # noqa: ASYNC110  there is no event to wait for
            await asyncio.sleep(0.1)


async def request_or_fail(client: ActionClient, path: str, action: str, **more: Any) -> Ticket:
    ticket = await client.request_action(Request(path=path, action=action, requested_by="eve", **more))
    assert ticket.admission.refusal is None, ticket.admission.refusal
    return ticket


async def run_to_end(client: ActionClient, path: str, action: str, **more: Any) -> None:
    await client.wait_for_outcome(path, (await request_or_fail(client, path, action, **more)).run)


def read_example_spec(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "examples" / f"{name}.yaml").read_text())
    return found


async def draw_full_screen(client: ActionClient) -> None:
    """`starter tui`, drawn by Textual itself."""
    app = Tui(client)
    async with app.run_test(size=(150, 22)) as pilot:
        async with asyncio.timeout(60):
            while not app.query_one("#objects-table", DataTable).row_count:
                await pilot.pause(0.1)
        await pilot.press("down")
        await pilot.pause(1.5)
        (FOLDER / "tui.svg").write_text(app.export_screenshot(title="starter tui"))


async def draw_progress_lines(client: ActionClient) -> None:
    """What a command shows while its action runs, drawn by rich itself."""
    faults = [
        Fault(kind=FaultKind.FAIL, vm="*front-1", verb="suspend", message="instance is under maintenance"),
        Fault(kind=FaultKind.HANG, csp="gcp", verb="suspend", seconds=8),
    ]
    await client.run_query(wire.CLOUD_FAULTS, FaultScript(faults=faults, replace=True), FaultScript)
    began = time.monotonic()
    ticket = await request_or_fail(client, WEB, "suspend", reason="closed for the night")
    seen = await read_mci_tree(client)
    async with asyncio.timeout(60):
        while len(seen.troubles) == 0 or tree.count_done_targets(seen.object, seen.object.counts, 6)[0] < 4:
            await asyncio.sleep(0.2)
            seen = await read_mci_tree(client)
    seconds = max(time.monotonic() - began, tree.MIN_PLACES)
    console = Console(record=True, width=96, file=io.StringIO())
    console.print("[bold]$[/] starter mci suspend default/web", highlight=False)
    console.print(tree.draw_tree(seen, 6, seconds, "", (96, 20)))
    console.save_svg(str(FOLDER / "terminal.svg"), title="while it runs")
    await client.wait_for_outcome(WEB, ticket.run)


async def read_mci_tree(client: ActionClient) -> TreeView:
    return await client.run_query(wire.READ_TREE, ReadQuery(path=WEB, limit=5), TreeView)


async def draw_web_ui(ui: str) -> None:
    """The list with columns of ours, and the dialog in which an MCI that holds is told to go on."""
    async with chromium(ui) as window:
        await window.open_list()
        await window.row(WEB)
        await window.remove_columns("Run ID", "Start", "End")
        await window.add_columns("Action", "Phase", "Progress", "Providers")
        await window.picture(FOLDER / "web-ui-list.png")
        await window.open(LAUNCH)
        await window.fill_signal("continue", {"requested_by": "eve", "reason": "it is nine"})
        await window.picture(FOLDER / "web-ui-signal.png")


if __name__ == "__main__":
    asyncio.run(main())
    sys.stdout.flush()
    os._exit(0)  # see workers/: the SDK's threads
