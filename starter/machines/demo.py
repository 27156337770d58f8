"""`starter demo machines`: scenario 1 of the source document, a request that waits behind a hidden migration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starter import terminal
from starter.demo import (
    demo_client,
    find_free_demo_name,
    print_heading,
    print_next_commands,
    request_expecting_admission,
    request_expecting_refusal,
    show_statuses,
)
from starter.errors import EXIT_OF_RESULT, ExitCode

if TYPE_CHECKING:
    from client.actions import ActionClient


async def machines() -> ExitCode:
    """Runs the demo: a machine is destroyed during a hidden migration, and a further request is refused."""
    async with demo_client() as client:
        name = await find_free_demo_name(client, "account")
        space = f"account:{name}:cloudspace:dev"
        db = f"{space}:machine:db"
        terminal.print_narration(f"\nA machine, two nodes, one queue: {db}")
        print_heading(1, "an account, a cloudspace, an image, two nodes, a machine with a disk")
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
            outcome = await client.wait_for_outcome(
                path, (await request_expecting_admission(client, path, action, spec)).run
            )
            terminal.print_narration(f"   {action:<9} {path}  {outcome.status}")
            if (code := EXIT_OF_RESULT[outcome.result]) is not ExitCode.DONE:
                return code
        code = await _play_scenario(client, db, f"{name}-2")
        print_next_commands(
            (
                f"starter history {db}",
                f"starter node maintain {name}-1",
                "starter queue list",
                "starter heal --dry-run",
                "starter states machine",
            )
        )
    return code


async def _play_scenario(client: ActionClient, db: str, there: str) -> ExitCode:
    print_heading(2, f"migrate it to {there}: the user sees nothing of that")
    await request_expecting_admission(client, db, "migrate", {"node": there})
    view = await client.read_object(db)
    terminal.print_narration(f"   status    {view.status}, on {view.info.get('node', 'no node')}")
    print_heading(3, "destroy it meanwhile: accepted, shown at once, and waiting for the migration")
    destroy = await request_expecting_admission(client, db, "destroy")
    print_heading(4, "and one more request: only one may wait")
    await request_expecting_refusal(client, db, "stop", "a second action was let in")
    print_heading(5, "the migration ends; then stop, delete, destroy, as one action")
    return EXIT_OF_RESULT[(await show_statuses(client, destroy)).result]
