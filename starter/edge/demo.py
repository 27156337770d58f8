"""`starter demo edge`: a cloudlet with a CRM in a process of its own, through crash, upgrade and undo."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from domain.errors import Category, Refused
from domain.model import Outcome
from domain.paths import build_path, name_of, short_path
from domain.statetable import LineEffect
from starter import terminal
from starter.demo import (
    demo_client,
    format_elapsed_seconds,
    print_heading,
    print_next_commands,
    request_expecting_admission,
    request_expecting_refusal,
)
from starter.edge import tree
from starter.errors import ExitCode
from starter.session import load_settings

if TYPE_CHECKING:
    from client.actions import ActionClient

DEMO_LATENCY = 0.9  # seconds of the CRM's work: slow enough to watch
POLL_SECONDS = 0.15
STATUS_SECONDS = 30  # until an object has the status that the story goes on from
NEXT_COMMANDS = (
    "starter up    # the same stack, to stay; then in two other terminals:",
    "starter crm run --cloudlet acme/berlin",
    "starter cloudlet create acme/berlin",
    "starter cluster create acme/berlin/c1 --nodes 2",
    "starter cloudlet status acme/berlin",
)


async def demo() -> ExitCode:
    """Runs the demo: a cloudlet, its CRM as a process, a crash, a refusal, an upgrade and an undo."""
    async with demo_client() as client:
        path = build_path(("org", "cloudlet"), ("demo", await _find_free_cloudlet_name(client)))
        terminal.print_narration(f"\nOne cloudlet, one CRM in a process of its own: {path}")
        async with _demo_crm(client, path, "v1") as crm:
            print_heading(1, "create the cloudlet", "its CRM connects, is acknowledged, gathers, and is Ready")
            await _run_and_print_action(client, path, "create")
            await _create_cloudlet(client, path)
            await _crash_crm(client, path, crm)
            print_heading(4, "upgrade to v2", "CRMv1 starts CRMv2; CRMv2 takes over and ends CRMv1")
            await _wait_for_status(client, path, "Ready")  # until the restarted CRM has gathered
            await _run_and_print_action(client, path, "upgrade", {"version": "v2"})
            await _fail_update(client, path)
            print_heading(6, "delete everything", "the cluster takes its app along; then the CRM is told to go")
            await _run_and_print_action(client, f"{path}:cluster:c1", "delete", {"cascade": True})
            await _run_and_print_action(client, path, "delete")
        print_next_commands((*NEXT_COMMANDS, f"starter history {path}    # the story that you just saw"))
    return ExitCode.DONE


async def _create_cloudlet(client: ActionClient, path: str) -> None:
    cluster = f"{path}:cluster:c1"
    print_heading(2, "create a cluster", "and an app in it at the same time: that is refused")
    running = asyncio.create_task(_run_and_print_action(client, cluster, "create", {"nodes": 2}))
    await _wait_for_status(client, cluster, "Creating", running)
    wrong = "an app was let into a cluster that does not exist yet"
    await request_expecting_refusal(client, f"{cluster}:app:shop", "create", wrong, "early", {})
    await running


async def _crash_crm(client: ActionClient, path: str, crm: asyncio.subprocess.Process) -> None:
    print_heading(
        3, "kill the CRM while it creates the app", "a new one connects, says what it has, and is asked again"
    )
    app = f"{path}:cluster:c1:app:shop"
    running = asyncio.create_task(_run_and_print_action(client, app, "create", {"replicas": 2}))
    await _wait_for_status(client, app, "Creating", running)
    crm.send_signal(signal.SIGKILL)
    await crm.wait()
    terminal.print_narration("   kill -9   the CRM is gone", "yellow")
    await _start_crm(client, path, "v1")
    await running


async def _fail_update(client: ActionClient, path: str) -> None:
    print_heading(5, "an update that the CRM cannot do", "it is undone, and the caller gets the CRM's own words")
    from workers.crm import fail_next_request

    fail_next_request(load_settings().home, path, "update", "no capacity for nine nodes")
    outcome = await _run_and_print_action(client, f"{path}:cluster:c1", "update", {"nodes": 9}, wanted="failed")
    terminal.print_narration(f"   told      {outcome.message}", "yellow")
    view = await client.read_object(path)
    inside = [view async for view in client.iterate_objects("cluster", path)]
    inside += [view async for view in client.iterate_objects("app", path)]
    for line in tree.tree_lines(view, inside):
        terminal.print_narration(f"   {line}")


async def _run_and_print_action(
    client: ActionClient, path: str, action: str, spec: dict[str, Any] | None = None, wanted: str = "succeeded"
) -> Outcome:
    """Carries out one action, and prints every status that its object passes through."""
    began = time.monotonic()
    ticket = await request_expecting_admission(client, path, action, spec)
    ending, seen = asyncio.create_task(client.wait_for_outcome(path, ticket.run)), 0
    while not ending.done():
        await asyncio.wait({ending}, timeout=POLL_SECONDS)
        seen = await _print_new_history(client, path, ticket.run, seen)
    outcome = ending.result()
    good = outcome.result == wanted
    terminal.print_narration(
        f"   {format_elapsed_seconds(began)}  {short_path(path)} {outcome.status}  {outcome.result}",
        "green" if good else "red",
    )
    if not good:
        raise Refused(Category.CONFLICT, f"{action} of {path} {outcome.result}: {outcome.message}", "starter doctor")
    return outcome


async def _print_new_history(client: ActionClient, path: str, run: str, seen: int) -> int:
    """Prints an action's new history lines. Returns the number of the last one."""
    mine = [line for line in await client.read_history(path) if line.run == run]
    for line in mine:
        if line.seq > seen and line.source != line.to and line.effect is not LineEffect.IGNORED:
            at = (line.at - mine[0].at).total_seconds()
            terminal.print_narration(f"   {at:6.2f} s  {name_of(path)}: {line.source} -> {line.to}  ({line.actor})")
    return max((line.seq for line in mine), default=seen)


async def _wait_for_status(
    client: ActionClient, path: str, status: str, running: asyncio.Task[Outcome] | None = None
) -> None:
    """Waits for an object's status, or until the action that leads through it is over."""
    async with asyncio.timeout(STATUS_SECONDS):
        while not (running and running.done()):
            found = [view async for view in client.iterate_objects(path.split(":")[-2], path)]
            if found and found[0].status == status:
                return
            await asyncio.sleep(POLL_SECONDS)


@asynccontextmanager
async def _demo_crm(client: ActionClient, path: str, version: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Runs a CRM during the demo, and ends all CRM processes of the cloudlet afterwards."""
    from workers.crm import stop_crm_processes

    try:
        yield await _start_crm(client, path, version)
    finally:
        await stop_crm_processes(load_settings().home, path)


async def _start_crm(client: ActionClient, path: str, version: str) -> asyncio.subprocess.Process:
    words = ["crm", "run", "--cloudlet", path, "--version", version, "--latency", str(DEMO_LATENCY)]
    settings = load_settings()
    settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    log = os.open(settings.home / "crm-demo.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    environment = {**os.environ, "TEMPORAL_ADDRESS": str(client.client.service_client.config.target_host)}
    try:
        command = (sys.executable, "-m", "starter", *words)
        process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=log, stderr=log)
    finally:
        os.close(log)
    terminal.print_narration(f"   process   starter {' '.join(words[:6])}", "cyan")
    return process


async def _find_free_cloudlet_name(client: ActionClient) -> str:
    """Returns edge-1, or the number after the highest that was ever used on this machine."""
    home = load_settings().home / "crm"
    files = [file.stem for file in home.glob("demo/edge-*.db")] if home.exists() else []
    names = [name_of(view.path) async for view in client.iterate_objects("cloudlet", "org:demo")]
    taken = [word.rsplit("-", 1)[-1] for word in (*files, *names)]
    return f"edge-{max((int(word) for word in taken if word.isdecimal()), default=0) + 1}"
