"""`starter demo machines`: scenario 1 of the source document, live: a request that waits behind a hidden migration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from domain import wire
from domain.errors import Category, Refused
from domain.model import ObjectView, Query
from domain.paths import name_of
from starter import terminal
from starter.demo import admitted, free_name, heading, see, somewhere, what_next
from starter.errors import OF_RESULT, Exit
from starter.naming import compose

if TYPE_CHECKING:
    from starter.asking import Asking, Ticket


async def machines() -> Exit:
    """Two nodes, a machine with a disk, a hidden migration, a user who destroys the machine meanwhile, and another."""
    async with somewhere() as asking:
        name = await _free_name(asking)
        space, image = f"account:{name}:cloudspace:dev", f"image:{name}"
        nodes, db = [f"node:{name}-{n}" for n in (1, 2)], f"{space}:machine:db"
        terminal.story(f"\nA machine, two nodes, one queue: {db}")
        heading(1, "an account, a cloudspace, an image, two nodes, a machine with a disk")
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
    heading(2, f"migrate it to {there}: the user sees nothing of that")
    await _admitted(asking, db, "migrate", {"node": there})
    await _tell_status(asking, db)
    heading(3, "destroy it meanwhile: accepted, shown at once, and waiting for the migration")
    destroy = await _admitted(asking, db, "destroy", {})
    heading(4, "and one more request: only one may wait")
    rival = (await asking.ask(compose(db, "stop", reason="demo: too late"))).admission.refusal
    if rival is None:
        raise Refused(Category.CONFLICT, "a second action was let in", "starter doctor")
    terminal.story(f"   refused   {rival.message}", "yellow")
    heading(5, "the migration ends; then stop, delete, destroy, as one action")
    return OF_RESULT[(await see(asking, destroy)).result]


async def _play(asking: Asking, path: str, action: str, spec: dict[str, object]) -> Exit:
    ticket = await _admitted(asking, path, action, spec)
    outcome = await asking.outcome(ticket.path, ticket.run)
    terminal.story(f"   {action:<9} {path}  {outcome.status}")
    return OF_RESULT[outcome.result]


async def _admitted(asking: Asking, path: str, action: str, spec: dict[str, object]) -> Ticket:
    return await admitted(asking, compose(path, action, spec=spec or None, reason="demo"))


async def _tell_status(asking: Asking, path: str) -> None:
    view = await asking.read(wire.READ_OBJECT, Query(path=path), ObjectView)
    terminal.story(f"   status    {view.status}, on {view.info.get('node', 'no node')}")


def _what_next(name: str) -> None:
    what_next(
        (
            f"starter history account:{name}:cloudspace:dev:machine:db",
            f"starter node maintain {name}-1",
            "starter queue list",
            "starter heal --dry-run",
            "starter states machine",
        )
    )


async def _free_name(asking: Asking) -> str:
    return free_name([name_of(view.path) async for view in asking.everything("account")])
