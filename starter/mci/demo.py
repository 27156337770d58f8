"""`starter demo mci`: the life of six VMs in three clouds, for a first look."""

from __future__ import annotations

from pathlib import Path

from domain.paths import make, short
from starter import terminal
from starter.demo import admitted, free_name, heading, refused, see, somewhere, what_next
from starter.errors import OF_RESULT, Exit
from starter.kinds import spec_in

SPEC = Path(__file__).parents[2] / "examples" / "mci-demo.yaml"
STEPS = {
    "create": "every VM is made by its own cloud, all at the same time",
    "suspend": "the MCI's status is computed from its VMs, whenever somebody asks",
    "resume": "and somebody else wants to reboot it meanwhile: one action at a time",
    "terminate": "for good",
}


async def mci() -> Exit:
    """Runs the demo: creates, suspends, resumes and terminates six VMs in three simulated clouds."""
    async with somewhere() as asking:
        path = make(("ns", "mci"), ("default", await free_name(asking, "mci", "ns:default")))
        terminal.story(f"\nSix VMs in three clouds, one MCI: {path}")
        for number, (action, remark) in enumerate(STEPS.items(), 1):
            heading(number, action, remark)
            ticket = await admitted(asking, path, action, spec_in(str(SPEC)) if action == "create" else None)
            if link := asking.link(ticket.path, ticket.run):
                terminal.story(f"   watch it  {link}", "cyan")
            if action == "resume":
                await refused(asking, path, "reboot", "the second action was let in while the first was running")
            if (code := OF_RESULT[(await see(asking, ticket)).result]) is not Exit.DONE:
                return code
        what_next(
            (
                "starter up    # the same stack, to stay, with every action in its Web UI; then in another terminal:",
                f"starter history {short(path)}",
                "starter mci create default/web -f examples/mci-demo.yaml",
                "starter mci status default/web",
                "starter --help",
            )
        )
    return Exit.DONE
