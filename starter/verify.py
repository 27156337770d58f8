"""`starter verify`: checks the invariants on a live system."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from domain import wire
from domain.model import Query, Verification
from starter import reads, terminal
from starter.errors import Exit
from starter.output import OutputOption, Sheet, show
from starter.session import session

PROMISES = {
    "I1": "every admitted request has one outcome",
    "I2": "at rest nothing is under way and nothing locked",
    "I3": "records and providers agree",
    "I4": "every history is a path through its table",
    "I5": "no two conflicting actions at once",
    "I7": "each record is about its own resource",
    "I11": "behind every change there is an action",
    "I12": "every future event has a running companion",
}


async def verify(
    path: Annotated[str, Parameter(help="Only at or below this object.")] = "", /, *, output: OutputOption = "table"
) -> Exit:
    """Check every promise against the inventory, Temporal's runs, and the clouds. Changes nothing.

    Example: starter verify
    """
    where = await reads.locate(path) if path else ""
    async with session() as asking:
        found = await asking.read(wire.VERIFY, Query(path=where), Verification, seconds=600)
    broken = {finding.invariant for finding in found.findings}
    for name, promise in PROMISES.items():
        terminal.say(f"{name:4} {promise:50} {'BROKEN' if name in broken else 'kept'}")
    terminal.say("looked at " + ", ".join(f"{number} {what}" for what, number in found.looked_at.items()))
    cells = [(each.invariant, each.path, each.what) for each in found.findings]
    headings, paths = ("PROMISE", "PATH", "WHAT"), [each.path for each in found.findings]
    show(Sheet(found.model_dump(mode="json"), headings, cells, paths, "every promise is kept"), output)
    return Exit.FAILED if found.findings else Exit.DONE
