"""`starter verify`: checks the invariants on a live system."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from domain import wire
from domain.invariants import VerificationReport
from domain.model import ReadQuery
from starter import reads, terminal
from starter.errors import ExitCode
from starter.flags import OutputOption
from starter.output import Sheet, print_sheet
from starter.session import open_client

INVARIANT_TEXTS = {
    "I1": "every admitted request has one outcome",
    "I2": "at rest nothing is under way and nothing locked",
    "I3": "what is recorded exists, and nothing else",
    "I4": "every history is a path through its table",
    "I5": "no two conflicting actions at once",
    "I7": "each record is true of its own resource",
    "I11": "behind every change there is an action",
    "I12": "every future event has a running companion",
}

_ABANDONED_STEP = "end what no action owns: starter heal"
_CHANGED_STEP = "see what was written: starter history PATH; only a bug or a change by hand writes that"
NEXT_STEPS = {
    "I1": _ABANDONED_STEP,
    "I2": _ABANDONED_STEP,
    "I3": "list what has no record: starter orphans; correct VMs' records by their cloud: starter mci reconcile PATH; "
    "for other kinds: starter explain PATH",
    "I4": _CHANGED_STEP,
    "I5": _CHANGED_STEP,
    "I7": "correct records of VMs by their cloud: starter mci reconcile PATH; for other kinds: starter explain PATH",
    "I11": _CHANGED_STEP,
    "I12": "start what is missing: starter heal",
}


async def verify(
    path: Annotated[str, Parameter(help="Only at or below this object.")] = "", /, *, output: OutputOption = "table"
) -> ExitCode:
    """Check every promise against the inventory, Temporal's runs, and the clouds. Changes nothing.

    Example: starter verify
    """
    where = await reads.locate_object(path) if path else ""
    async with open_client() as client:
        report = await client.run_query(wire.VERIFY_ACTIVITY, ReadQuery(path=where), VerificationReport, seconds=600)
    broken = {finding.invariant for finding in report.findings}
    for name, promise in INVARIANT_TEXTS.items():
        terminal.print_remark(f"{name:4} {promise:50} {'BROKEN' if name in broken else 'kept'}")
    terminal.print_remark(
        "tests alone can check I6, I8, I9 and I10 (calls, effects, replay, secrets): docs/reliability.md"
    )
    terminal.print_remark("looked at " + ", ".join(f"{number} {what}" for what, number in report.looked_at.items()))
    cells = [(finding.invariant, finding.path, finding.what) for finding in report.findings]
    headings, paths = ("PROMISE", "PATH", "WHAT"), [finding.path for finding in report.findings]
    print_sheet(Sheet(report.model_dump(mode="json"), headings, cells, paths, "every promise is kept"), output)
    for name in sorted(broken, key=list(NEXT_STEPS).index):
        terminal.print_remark(f"next, for {name}: {terminal.rewrite_commands(NEXT_STEPS[name])}")
    return ExitCode.FAILED if report.findings else ExitCode.DONE
