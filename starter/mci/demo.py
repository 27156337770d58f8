"""`starter demo mci`: the life of six VMs in three clouds, for a first look."""

from __future__ import annotations

from pathlib import Path

from domain.paths import build_path, short_path
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
from starter.kinds import read_spec_file

SPEC = Path(__file__).parents[2] / "examples" / "mci-demo.yaml"
REMARK_OF_STEP = {
    "create": "every VM is made by its own cloud, all at the same time",
    "suspend": "the MCI's status is computed from its VMs, whenever somebody asks",
    "resume": "and somebody else wants to reboot it meanwhile: one action at a time",
    "terminate": "for good",
}


async def mci() -> ExitCode:
    """Runs the demo: creates, suspends, resumes and terminates six VMs in three simulated clouds."""
    async with demo_client() as client:
        path = build_path(("ns", "mci"), ("default", await find_free_demo_name(client, "mci", "ns:default")))
        terminal.print_narration(f"\nSix VMs in three clouds, one MCI: {path}")
        for number, (action, remark) in enumerate(REMARK_OF_STEP.items(), 1):
            print_heading(number, action, remark)
            ticket = await request_expecting_admission(
                client, path, action, read_spec_file(str(SPEC)) if action == "create" else None
            )
            if link := client.web_ui_url(ticket.path, ticket.run):
                terminal.print_narration(f"   watch it  {link}", "cyan")
            if action == "resume":
                await request_expecting_refusal(
                    client, path, "reboot", "the second action was let in while the first was running"
                )
            if (code := EXIT_OF_RESULT[(await show_statuses(client, ticket)).result]) is not ExitCode.DONE:
                return code
        print_next_commands(
            (
                "starter up    # the same stack, to stay, with every action in its Web UI; then in another terminal:",
                f"starter history {short_path(path)}",
                "starter mci create default/web -f examples/mci-demo.yaml",
                "starter mci status default/web",
                "starter --help",
            )
        )
    return ExitCode.DONE
