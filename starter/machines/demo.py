"""`starter demo machines`: scenario 1 of the source document, a request that waits behind a hidden migration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from domain import wire
from domain.model import ObjectView, Query
from starter import terminal
from starter.demo import admitted, free_name, heading, refused, see, somewhere, what_next
from starter.errors import OF_RESULT, Exit

if TYPE_CHECKING:
    from client.actions import ActionClient


async def machines() -> Exit:
    """Runs the demo: a machine is destroyed during a hidden migration, and a further request is refused."""
    async with somewhere() as asking:
        name = await free_name(asking, "account")
        space = f"account:{name}:cloudspace:dev"
        db = f"{space}:machine:db"
        terminal.story(f"\nA machine, two nodes, one queue: {db}")
        heading(1, "an account, a cloudspace, an image, two nodes, a machine with a disk")
        plays: list[tuple[str, str, dict[str, Any] | None]] = [
            (f"account:{name}", "create", None),
            (space, "create", None),
            (f"image:{name}", "create", None),
            (f"node:{name}-1", "create", {"memory": 8}),
            (f"node:{name}-2", "create", {"memory": 8}),
            (db, "create", {"image": name, "node": f"{name}-1"}),
            (db, "add-disk", {"disk": "data"}),
        ]
        for path, action, spec in plays:
            outcome = await asking.outcome(path, (await admitted(asking, path, action, spec)).run)
            terminal.story(f"   {action:<9} {path}  {outcome.status}")
            if (code := OF_RESULT[outcome.result]) is not Exit.DONE:
                return code
        code = await _scenario(asking, db, f"{name}-2")
        what_next(
            (
                f"starter history {db}",
                f"starter node maintain {name}-1",
                "starter queue list",
                "starter heal --dry-run",
                "starter states machine",
            )
        )
    return code


async def _scenario(asking: ActionClient, db: str, there: str) -> Exit:
    heading(2, f"migrate it to {there}: the user sees nothing of that")
    await admitted(asking, db, "migrate", {"node": there})
    view = await asking.read(wire.READ_OBJECT, Query(path=db), ObjectView)
    terminal.story(f"   status    {view.status}, on {view.info.get('node', 'no node')}")
    heading(3, "destroy it meanwhile: accepted, shown at once, and waiting for the migration")
    destroy = await admitted(asking, db, "destroy")
    heading(4, "and one more request: only one may wait")
    await refused(asking, db, "stop", "a second action was let in")
    heading(5, "the migration ends; then stop, delete, destroy, as one action")
    return OF_RESULT[(await see(asking, destroy)).result]
