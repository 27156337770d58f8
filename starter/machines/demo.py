"""`starter demo machines`: scenario 1 of the source document, live: a request that waits behind a hidden migration."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from domain.errors import Category, Refused
from domain.model import Result
from domain.paths import name_of
from starter import terminal
from starter.demo import somewhere
from starter.errors import OF_RESULT, Exit
from starter.naming import compose
from starter.progress import changes, watch

if TYPE_CHECKING:
    from starter.asking import Asking, Ticket

GLANCE = 0.1


async def machines() -> Exit:
    """Two nodes, a machine with a disk, a hidden migration, a user who destroys the machine meanwhile, and another."""
    async with somewhere() as asking:
        name = await _free_name(asking)
        space, image = f"account:{name}:cloudspace:dev", f"image:{name}"
        nodes, db = [f"node:{name}-{n}" for n in (1, 2)], f"{space}:machine:db"
        terminal.story(f"\nA machine, two nodes, one queue: {db}")
        _heading(1, "an account, a cloudspace, an image, two nodes, a machine with a disk")
        plays: list[tuple[str, str, dict[str, object]]] = [
            (f"account:{name}", "create", {}),
            (space, "create", {}),
            (image, "create", {}),
            (nodes[0], "create", {"memory": 8}),
            (nodes[1], "create", {"memory": 8}),
            (db, "create", {"image": name, "node": name_of(nodes[0])}),
            (db, "add-disk", {"disk": "data"}),
        ]
        for path, action, spec in plays:
            if (code := await _play(asking, path, action, spec)) is not Exit.DONE:
                return code
        code = await _scenario(asking, db, name_of(nodes[1]))
        _what_next(name)
    return code


async def _scenario(asking: Asking, db: str, there: str) -> Exit:
    _heading(2, f"migrate it to {there}: the user sees nothing of that")
    await _admitted(asking, db, "migrate", {"node": there})
    await _tell_status(asking, db)
    _heading(3, "destroy it meanwhile: accepted, shown at once, and waiting for the migration")
    destroy = await _admitted(asking, db, "destroy", {})
    _heading(4, "and one more request: only one may wait")
    rival = (await asking.ask(compose(db, "stop", reason="demo: too late"))).admission.refusal
    if rival is None:
        raise Refused(Category.CONFLICT, "a second action was let in", "starter doctor")
    terminal.story(f"   refused   {rival.message}", "yellow")
    _heading(5, "the migration ends; then stop, delete, destroy, as one action")
    return await _see(asking, destroy)


async def _play(asking: Asking, path: str, action: str, spec: dict[str, object]) -> Exit:
    ticket = await _admitted(asking, path, action, spec)
    outcome = await asking.outcome(ticket.path, ticket.run)
    terminal.story(f"   {action:<9} {path}  {outcome.status}")
    return OF_RESULT[outcome.result]


async def _admitted(asking: Asking, path: str, action: str, spec: dict[str, object]) -> Ticket:
    ticket = await asking.ask(compose(path, action, spec=spec or None, reason="demo"))
    if ticket.admission.refusal:
        raise ticket.admission.refusal.error()
    return ticket


async def _see(asking: Asking, ticket: Ticket) -> Exit:
    began = time.monotonic()
    tell = changes(lambda text: terminal.story(f"   {_clock(began)}  {text.partition(': ')[2]}"))
    outcome = await watch(asking, ticket.path, ticket.run, 0, tell, GLANCE)
    good = outcome.result is Result.SUCCEEDED
    terminal.story(f"   {_clock(began)}  {outcome.status}  {outcome.result}", "bold green" if good else "bold red")
    return OF_RESULT[outcome.result]


async def _tell_status(asking: Asking, path: str) -> None:
    from domain import wire
    from domain.model import ObjectView, Query

    view = await asking.read(wire.READ_OBJECT, Query(path=path), ObjectView)
    terminal.story(f"   status    {view.status}, on {view.info.get('node', 'no node')}")


def _heading(number: int, remark: str) -> None:
    terminal.story(f"\n{number}. {remark}", "bold")


def _clock(began: float) -> str:
    return f"{time.monotonic() - began:6.2f} s"


def _what_next(name: str) -> None:
    terminal.story("\nDone. What happened is kept. What to try next:", "bold")
    for line in (
        f"starter history account:{name}:cloudspace:dev:machine:db",
        f"starter node maintain {name}-1",
        "starter queue list",
        "starter heal --dry-run",
        "starter states machine",
    ):
        terminal.story(f"   {terminal.command(line)}")


async def _free_name(asking: Asking) -> str:
    """demo-1, or the number after the highest that there is."""
    names = [name_of(view.path) async for view in asking.everything("account")]
    taken = [int(name[5:]) for name in names if name.startswith("demo-") and name[5:].isdecimal()]
    return f"demo-{max(taken, default=0) + 1}"
