"""`starter demo volumes`: the life of a volume, and an action that its table does not allow."""

from __future__ import annotations

from typing import Any

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

STEPS: tuple[tuple[str, dict[str, Any] | None, str], ...] = (
    ("create", {"size": 20}, "the provider has it, and the inventory knows"),
    ("attach", {"server": "web-1"}, "one server at a time"),
    ("detach", None, "after that it may go"),
    ("delete", None, "for good"),
)


async def volumes() -> ExitCode:
    """Runs the demo: a volume is created, attached, detached and deleted; to delete it in use is refused."""
    async with demo_client() as client:
        path = f"project:demo:volume:{await find_free_demo_name(client, 'volume')}"
        terminal.print_narration(f"\nA volume and a server: {path}")
        for number, (action, spec, remark) in enumerate(STEPS, 1):
            print_heading(number, action, remark)
            outcome = await show_statuses(client, await request_expecting_admission(client, path, action, spec))
            if (code := EXIT_OF_RESULT[outcome.result]) is not ExitCode.DONE:
                return code
            if action == "attach":
                await request_expecting_refusal(client, path, "delete", "a volume in use was deleted")
        print_next_commands((f"starter history {path}", "starter states volume"))
    return ExitCode.DONE
