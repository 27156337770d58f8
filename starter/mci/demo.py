"""`starter demo mci`: the life of six VMs in three clouds, for somebody who sees this for the first time."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from domain.errors import Category, Refused
from domain.model import Request, Result
from domain.paths import make, name_of, short
from starter import terminal
from starter.errors import OF_RESULT, Exit
from starter.kinds import spec_in
from starter.naming import compose
from starter.progress import changes, watch
from starter.session import load_settings, session

if TYPE_CHECKING:
    from starter.asking import Asking, Ticket
    from workers.settings import Settings

SPEC = Path(__file__).parent.parent / "examples" / "mci-demo.yaml"
GLANCE = 0.1  # seconds between looks: short, so that no status goes unseen
LATENCY = 1.2  # of the demo's own clouds: slow enough to watch
JITTER = 0.9


async def mci() -> Exit:
    """Create, suspend, resume and terminate six VMs in three simulated clouds, live."""
    async with somewhere() as asking:
        path = make(("ns", "mci"), ("default", await _free_name(asking)))
        terminal.story(f"\nSix VMs in three clouds, one MCI: {path}")
        for play in (_create, _suspend, _resume_with_a_rival, _terminate):
            if (code := await play(asking, path)) is not Exit.DONE:
                return code
        _what_next(path)
    return Exit.DONE


async def _create(asking: Asking, path: str) -> Exit:
    _heading(1, "create", "every VM is made by its own cloud, all at the same time")
    return await _play(asking, compose(path, "create", spec=spec_in(str(SPEC)), reason="demo"))


async def _suspend(asking: Asking, path: str) -> Exit:
    _heading(2, "suspend", "the MCI's status is computed from its VMs, whenever somebody asks")
    return await _play(asking, compose(path, "suspend", reason="demo"))


async def _resume_with_a_rival(asking: Asking, path: str) -> Exit:
    _heading(3, "resume", "and somebody else wants to reboot it meanwhile: one action at a time")
    ticket = await _admitted(asking, compose(path, "resume", reason="demo"))
    rival = (await asking.ask(compose(path, "reboot", reason="demo: too late"))).admission.refusal
    if rival is None:
        raise Refused(Category.CONFLICT, "the second action was let in while the first was running", "starter doctor")
    terminal.story(f"   refused   {rival.message}", "yellow")
    return await _see(asking, ticket)


async def _terminate(asking: Asking, path: str) -> Exit:
    _heading(4, "terminate", "for good")
    return await _play(asking, compose(path, "terminate", reason="demo"))


async def _play(asking: Asking, request: Request) -> Exit:
    return await _see(asking, await _admitted(asking, request))


async def _admitted(asking: Asking, request: Request) -> Ticket:
    ticket = await asking.ask(request)
    if ticket.admission.refusal:
        raise ticket.admission.refusal.error()
    if link := asking.link(ticket.path, ticket.run):
        terminal.story(f"   watch it  {link}", "cyan")
    return ticket


async def _see(asking: Asking, ticket: Ticket) -> Exit:
    """Show the statuses as they change until the action ends."""
    began = time.monotonic()
    grant = ticket.admission.grant
    targets = grant.targets if grant else 0
    tell = changes(lambda text: terminal.story(f"   {_clock(began)}  {text.partition(': ')[2]}"))
    outcome = await watch(asking, ticket.path, ticket.run, targets, tell, GLANCE)
    good = outcome.result is Result.SUCCEEDED
    terminal.story(f"   {_clock(began)}  {outcome.status}  {outcome.result}", "bold green" if good else "bold red")
    return OF_RESULT[outcome.result]


def _heading(number: int, action: str, remark: str) -> None:
    terminal.story(f"\n{number}. {action}: {remark}", "bold")


def _clock(began: float) -> str:
    return f"{time.monotonic() - began:6.2f} s"


def _what_next(path: str) -> None:
    terminal.story("\nDone. What happened is kept. What to try next:", "bold")
    for line in (
        "starter up    # the same stack, to stay, with every action in its Web UI; then in another terminal:",
        f"starter history {short(path)}",
        "starter mci create default/web -f examples/mci-demo.yaml",
        "starter mci status default/web",
        "starter --help",
    ):
        terminal.story(f"   {terminal.command(line)}")


async def _free_name(asking: Asking) -> str:
    """demo-1, or the number after the highest that there is."""
    names = [name_of(view.path) async for view in asking.everything("mci", "ns:default")]
    taken = [int(name[5:]) for name in names if name.startswith("demo-") and name[5:].isdecimal()]
    return f"demo-{max(taken, default=0) + 1}"


@asynccontextmanager
async def somewhere() -> AsyncIterator[Asking]:
    """The stack that runs, here or where TEMPORAL_ADDRESS says; if none does, one of our own for the time being."""
    from workers import home
    from workers.connection import configured

    settings = load_settings()
    elsewhere = configured().get("target_host")
    if elsewhere or home.in_use(settings.home):
        async with session() as asking:
            terminal.story(f"Using the server at {asking.client.service_client.config.target_host}")
            yield asking
    else:
        async with _own() as asking:
            yield asking


@asynccontextmanager
async def _own() -> AsyncIterator[Asking]:
    from starter.asking import Asking
    from workers import logs, process

    settings = _watchable(load_settings())
    logs.configure("error", "console")
    terminal.story(f"Starting a Temporal server and a worker; their data is in {settings.home}/")
    async with process.stack(settings) as running:
        terminal.story(f"   Temporal {running.address}, Web UI {running.ui}")
        yield Asking(running.client, running.ui)


def _watchable(settings: Settings) -> Settings:
    """The clouds slow enough to watch, unless somebody set their speed."""
    speed = {"simulated_latency": LATENCY, "simulated_jitter": JITTER}
    return settings if settings.model_fields_set & speed.keys() else settings.model_copy(update=speed)
