"""Shared by the demos of all families: a stack to run on, and the output format."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from domain.errors import Category, Refused
from domain.model import ActionResult, Outcome
from starter import terminal
from starter.naming import compose_request
from starter.progress import follow_with_status_lines, skip_repeated_lines
from starter.session import open_client
from starter.stack import worker_settings

if TYPE_CHECKING:
    from client.actions import ActionClient, Ticket

POLL_SECONDS = 0.1  # seconds between polls: short, so that no status is missed
DEMO_LATENCY = 1.2  # of the demo's own clouds: slow enough to watch
DEMO_JITTER = 0.9


def print_heading(number: int, step: str, remark: str = "") -> None:
    """Prints the heading of a step."""
    terminal.print_narration(f"\n{number}. {step}: {remark}" if remark else f"\n{number}. {step}", "bold")


def format_elapsed_seconds(began: float) -> str:
    """Returns the seconds since `began`, in a fixed width."""
    return f"{time.monotonic() - began:6.2f} s"


def print_next_commands(commands: Iterable[str], done: str = "Done. What happened is kept. What to try next:") -> None:
    """Prints the commands to try next."""
    terminal.print_narration(f"\n{terminal.rewrite_commands(done)}", "bold")
    for line in commands:
        terminal.print_narration(f"   {terminal.rewrite_commands(line)}")


async def find_free_demo_name(client: ActionClient, kind: str, below: str = "") -> str:
    """Returns demo-1, or the number after the highest in use."""
    names = [word async for view in client.iterate_objects(kind, below) for word in view.path.split(":")[1::2]]
    taken = [int(name[5:]) for name in names if name.startswith("demo-") and name[5:].isdecimal()]
    return f"demo-{max(taken, default=0) + 1}"


async def request_expecting_admission(
    client: ActionClient, path: str, action: str, spec: dict[str, Any] | None = None
) -> Ticket:
    """Requests an action that must be admitted."""
    ticket = await client.request_action(compose_request(path, action, spec=spec, reason="demo"))
    if ticket.admission.refusal:
        raise ticket.admission.refusal.to_error()
    return ticket


async def request_expecting_refusal(
    client: ActionClient, path: str, action: str, wrong: str, when: str = "late", spec: dict[str, Any] | None = None
) -> None:
    """Requests an action that must be refused. `wrong` is the error if it is admitted."""
    asked = await client.request_action(compose_request(path, action, spec=spec, reason=f"demo: too {when}"))
    if asked.admission.refusal is None:
        raise Refused(Category.CONFLICT, wrong, "starter doctor")
    terminal.print_narration(f"   refused   {asked.admission.refusal.message}", "yellow")


async def show_statuses(
    client: ActionClient,
    ticket: Ticket,
    wanted: ActionResult = ActionResult.SUCCEEDED,
    say: Callable[[str, str], None] = terminal.print_narration,
) -> Outcome:
    """Prints the statuses as they change until the action ends."""
    began = time.monotonic()
    grant = ticket.admission.grant
    tell = skip_repeated_lines(lambda text: say(f"   {format_elapsed_seconds(began)}  {text.partition(': ')[2]}", ""))
    outcome = await follow_with_status_lines(
        client, ticket.path, ticket.run, grant.targets if grant else 0, tell, POLL_SECONDS
    )
    style = "bold green" if outcome.result is wanted else "bold red"
    say(f"   {format_elapsed_seconds(began)}  {outcome.status}  {outcome.result}", style)
    return outcome


@asynccontextmanager
async def demo_client(**more: Any) -> AsyncIterator[ActionClient]:
    """Connects to the running stack, here or at TEMPORAL_ADDRESS; without one, runs a stack with `more` settings."""
    from client.connection import read_configured_options
    from workers import datafolder

    settings = worker_settings()
    elsewhere = read_configured_options().get("target_host")
    if elsewhere or datafolder.is_folder_in_use(settings.home):
        async with open_client() as client:
            terminal.print_narration(f"Using the server at {client.client.service_client.config.target_host}")
            yield client
    else:
        async with _run_own_stack(more) as client:
            yield client


@asynccontextmanager
async def _run_own_stack(more: dict[str, Any]) -> AsyncIterator[ActionClient]:
    from client.actions import ActionClient
    from workers import logs, process

    settings = worker_settings()
    slow = {"simulated_latency": DEMO_LATENCY, "simulated_jitter": DEMO_JITTER}  # unless one of them is set
    settings = settings.model_copy(update=({} if settings.model_fields_set & slow.keys() else slow) | more)
    logs.configure_logging("error", "console")
    terminal.print_narration(f"Starting a Temporal server and a worker; their data is in {settings.home}/")
    async with process.run_stack(settings) as running:
        terminal.print_narration(f"   Temporal {running.address}, Web UI {running.ui}")
        yield ActionClient(running.client, running.ui)
