"""`starter heal`: runs a sweep of self-healing, and prints the reports of earlier ones."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from domain import wire
from domain.healing import ANY, HealEntry, HealFinding, HealReport, HealReports, ReportQuery, Sweep
from domain.paths import short
from starter import terminal
from starter.actions import duration
from starter.errors import Exit
from starter.output import Output, OutputOption, Sheet, show, when
from starter.session import session

HEADINGS = ("OBJECT", "ACTION", "SINCE", "STATUS", "FINDING", "NOW", "PROVIDER")

app = App(name="heal", help="Self-healing: restore what dead actions left behind.")


@app.default
async def heal(
    *,
    dry_run: Annotated[bool, Parameter(negative="", help="Only say what would be done.")] = False,
    older_than: Annotated[str, Parameter(help="Instead of the limits of each kind, such as 5m.")] = "",
    output: OutputOption = "table",
) -> Exit:
    """Sweep now: restore every object whose action is open although its workflow is closed.

    An object goes back to the stable status that it had; an action that is slow but alive is only reported. Limits
    apply to actions that Temporal has no record of, and to slow ones. A sweep ten minutes later removes what a dead
    creation left outside without a record, unless a new action has adopted it.

    Example: starter heal --dry-run
    """
    seconds = duration(older_than, "--older-than")
    order = Sweep(dry_run=dry_run, limits=None if seconds is None else {ANY: seconds})
    async with session() as asking:
        report = await asking.heal(order)
    return _tell([report], output)


@app.command(name="report")
async def report(
    *,
    limit: Annotated[int, Parameter(name=["--limit", "-n"], help="How many sweeps, the newest first.")] = 1,
    output: OutputOption = "table",
) -> Exit:
    """Print the reports of the last sweeps.

    Example: starter heal report -n 5
    """
    async with session() as asking:
        kept = await asking.read(wire.READ_REPORTS, ReportQuery(limit=limit), HealReports)
    return _tell(kept.reports, output)


def _name(found: HealEntry) -> str:
    """Returns a companion's workflow ID, or an object's short path."""
    return found.path if found.finding in (HealFinding.STARTED, HealFinding.WOULD_START) else short(found.path)


def _pruned(report: HealReport) -> str:
    """Tells how much retention removed, or why it could not."""
    pruned = report.pruned
    if not pruned or not (pruned.actions or pruned.lines or pruned.problem):
        return ""
    told = f"; exported and removed {pruned.actions} old actions and {pruned.lines} lines of history"
    return f"{told}; {pruned.problem}" if pruned.problem else told


def _tell(reports: list[HealReport], output: Output) -> Exit:
    lines = [
        (_name(each), each.action, when(each.since), each.status, each.finding.value, each.to, each.provider)
        for report in reports
        for each in report.found
    ]
    for report in reports:
        counts = ", ".join(f"{number} {finding}" for finding, number in report.counts.items()) or "nothing to heal"
        dry = ", dry run" if report.dry_run else ""
        terminal.say(f"sweep {report.number} at {when(report.at)}{dry}: {counts}{_pruned(report)}")
    if not reports:
        terminal.say(terminal.command("there was no sweep yet; begin one with: starter heal"))
    data = [report.model_dump(mode="json") for report in reports]
    paths = [each.path for report in reports for each in report.found]
    show(Sheet(data, HEADINGS, lines, paths, empty=""), output)  # the lines above have the errors
    return Exit.DONE
