"""`starter demo mci`: the life of six VMs in three clouds, for somebody who sees this for the first time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from domain.errors import Category, Refused
from domain.model import Request
from domain.paths import make, name_of, short
from starter import terminal
from starter.demo import admitted, free_name, heading, see, somewhere, what_next
from starter.errors import OF_RESULT, Exit
from starter.kinds import spec_in
from starter.naming import compose

if TYPE_CHECKING:
    from starter.asking import Asking, Ticket

SPEC = Path(__file__).parents[2] / "examples" / "mci-demo.yaml"


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
    heading(1, "create", "every VM is made by its own cloud, all at the same time")
    return await _play(asking, compose(path, "create", spec=spec_in(str(SPEC)), reason="demo"))


async def _suspend(asking: Asking, path: str) -> Exit:
    heading(2, "suspend", "the MCI's status is computed from its VMs, whenever somebody asks")
    return await _play(asking, compose(path, "suspend", reason="demo"))


async def _resume_with_a_rival(asking: Asking, path: str) -> Exit:
    heading(3, "resume", "and somebody else wants to reboot it meanwhile: one action at a time")
    ticket = await _admitted(asking, compose(path, "resume", reason="demo"))
    rival = (await asking.ask(compose(path, "reboot", reason="demo: too late"))).admission.refusal
    if rival is None:
        raise Refused(Category.CONFLICT, "the second action was let in while the first was running", "starter doctor")
    terminal.story(f"   refused   {rival.message}", "yellow")
    return await _seen(asking, ticket)


async def _terminate(asking: Asking, path: str) -> Exit:
    heading(4, "terminate", "for good")
    return await _play(asking, compose(path, "terminate", reason="demo"))


async def _play(asking: Asking, request: Request) -> Exit:
    return await _seen(asking, await _admitted(asking, request))


async def _seen(asking: Asking, ticket: Ticket) -> Exit:
    return OF_RESULT[(await see(asking, ticket)).result]


async def _admitted(asking: Asking, request: Request) -> Ticket:
    ticket = await admitted(asking, request)
    if link := asking.link(ticket.path, ticket.run):
        terminal.story(f"   watch it  {link}", "cyan")
    return ticket


def _what_next(path: str) -> None:
    what_next(
        (
            "starter up    # the same stack, to stay, with every action in its Web UI; then in another terminal:",
            f"starter history {short(path)}",
            "starter mci create default/web -f examples/mci-demo.yaml",
            "starter mci status default/web",
            "starter --help",
        )
    )


async def _free_name(asking: Asking) -> str:
    return free_name([name_of(view.path) async for view in asking.everything("mci", "ns:default")])
