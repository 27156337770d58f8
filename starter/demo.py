"""Shared by the demos of all families: a stack to run on, and the output format."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from domain.errors import Category, Refused
from domain.model import Outcome, Result
from starter import terminal
from starter.naming import compose
from starter.progress import changes, watch
from starter.session import session
from starter.stack import worker_settings

if TYPE_CHECKING:
    from client.actions import ActionClient, Ticket
    from workers.settings import Settings

GLANCE = 0.1  # seconds between polls: short, so that no status is missed
LATENCY = 1.2  # of the demo's own clouds: slow enough to watch
JITTER = 0.9


def heading(number: int, step: str, remark: str = "") -> None:
    """Prints the heading of a step."""
    terminal.story(f"\n{number}. {step}: {remark}" if remark else f"\n{number}. {step}", "bold")


def clock(began: float) -> str:
    """Returns the seconds since `began`, in a fixed width."""
    return f"{time.monotonic() - began:6.2f} s"


def what_next(commands: Iterable[str], done: str = "Done. What happened is kept. What to try next:") -> None:
    """Prints the commands to try next."""
    terminal.story(f"\n{terminal.command(done)}", "bold")
    for line in commands:
        terminal.story(f"   {terminal.command(line)}")


async def free_name(asking: ActionClient, kind: str, below: str = "") -> str:
    """Returns demo-1, or the number after the highest in use."""
    names = [word async for view in asking.everything(kind, below) for word in view.path.split(":")[1::2]]
    taken = [int(name[5:]) for name in names if name.startswith("demo-") and name[5:].isdecimal()]
    return f"demo-{max(taken, default=0) + 1}"


async def admitted(asking: ActionClient, path: str, action: str, spec: dict[str, Any] | None = None) -> Ticket:
    """Requests an action that must be admitted."""
    ticket = await asking.ask(compose(path, action, spec=spec, reason="demo"))
    if ticket.admission.refusal:
        raise ticket.admission.refusal.error()
    return ticket


async def refused(
    asking: ActionClient, path: str, action: str, wrong: str, when: str = "late", spec: dict[str, Any] | None = None
) -> None:
    """Requests an action that must be refused. `wrong` is the error if it is admitted."""
    asked = await asking.ask(compose(path, action, spec=spec, reason=f"demo: too {when}"))
    if asked.admission.refusal is None:
        raise Refused(Category.CONFLICT, wrong, "starter doctor")
    terminal.story(f"   refused   {asked.admission.refusal.message}", "yellow")


async def see(
    asking: ActionClient,
    ticket: Ticket,
    wanted: Result = Result.SUCCEEDED,
    say: Callable[[str, str], None] = terminal.story,
) -> Outcome:
    """Prints the statuses as they change until the action ends."""
    began = time.monotonic()
    grant = ticket.admission.grant
    tell = changes(lambda text: say(f"   {clock(began)}  {text.partition(': ')[2]}", ""))
    outcome = await watch(asking, ticket.path, ticket.run, grant.targets if grant else 0, tell, GLANCE)
    style = "bold green" if outcome.result is wanted else "bold red"
    say(f"   {clock(began)}  {outcome.status}  {outcome.result}", style)
    return outcome


@asynccontextmanager
async def somewhere() -> AsyncIterator[ActionClient]:
    """Connects to the running stack, here or at TEMPORAL_ADDRESS; without one, runs a stack for the demo."""
    from client.connection import configured
    from workers import home

    settings = worker_settings()
    elsewhere = configured().get("target_host")
    if elsewhere or home.in_use(settings.home):
        async with session() as asking:
            terminal.story(f"Using the server at {asking.client.service_client.config.target_host}")
            yield asking
    else:
        async with _own() as asking:
            yield asking


@asynccontextmanager
async def _own() -> AsyncIterator[ActionClient]:
    from client.actions import ActionClient
    from workers import logs, process

    settings = _watchable(worker_settings())
    logs.configure("error", "console")
    terminal.story(f"Starting a Temporal server and a worker; their data is in {settings.home}/")
    async with process.stack(settings) as running:
        terminal.story(f"   Temporal {running.address}, Web UI {running.ui}")
        yield ActionClient(running.client, running.ui)


def _watchable(settings: Settings) -> Settings:
    """Slows the simulated clouds down enough to watch, unless their latency is set."""
    speed = {"simulated_latency": LATENCY, "simulated_jitter": JITTER}
    return settings if settings.model_fields_set & speed.keys() else settings.model_copy(update=speed)
