"""`starter heal`: runs a sweep of self-healing, and prints the reports of earlier ones."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from domain import wire
from domain.errors import format_count
from domain.healing import ANY_ACTION, HealEntry, HealFinding, HealReport, HealReports, HealReportsQuery, SweepOptions
from domain.paths import short_path
from starter import terminal
from starter.actions import parse_duration
from starter.errors import ExitCode
from starter.flags import OutputOption
from starter.output import Output, Sheet, format_time, print_sheet
from starter.session import open_client

HEADINGS = ("OBJECT", "ACTION", "SINCE", "STATUS", "FINDING", "NOW", "PROVIDER")

app = App(name="heal", help="Self-healing: restore what dead actions left behind.")


@app.default
async def heal(
    *,
    dry_run: Annotated[bool, Parameter(negative="", help="Only say what would be done.")] = False,
    older_than: Annotated[str, Parameter(help="Instead of the limits of each kind, such as 5m.")] = "",
    output: OutputOption = "table",
) -> ExitCode:
    """Sweep now: restore every object whose action is open although its workflow is closed.

    An object goes back to the stable status that it had; an action that is slow but alive is only reported. An
    action that Temporal has no record of, or that is slow, counts after the time limit of its kind. A sweep ten minutes
    later removes what a dead creation left outside without a record, unless a new action has adopted it. A workflow
    that runs although the inventory has ended its action is asked to cancel.

    Example: starter heal --dry-run
    """
    seconds = parse_duration(older_than, "--older-than")
    order = SweepOptions(dry_run=dry_run, limits=None if seconds is None else {ANY_ACTION: seconds})
    async with open_client() as client:
        report = await client.run_sweep(order)
    return _print_reports([report], output)


@app.command(name="report")
async def report(
    *,
    limit: Annotated[int, Parameter(name=["--limit", "-n"], help="How many sweeps, the newest first.")] = 1,
    output: OutputOption = "table",
) -> ExitCode:
    """Print the reports of the last sweeps.

    Example: starter heal report -n 5
    """
    async with open_client() as client:
        reports = await client.run_query(wire.READ_REPORTS, HealReportsQuery(limit=limit), HealReports)
    return _print_reports(reports.reports, output)


def _name_of_entry(found: HealEntry) -> str:
    """Returns a companion's workflow ID, or an object's short path."""
    return found.path if found.finding in (HealFinding.STARTED, HealFinding.WOULD_START) else short_path(found.path)


def _describe_retention(report: HealReport) -> str:
    """Tells how much retention removed, or why it could not."""
    pruned = report.pruned
    if not pruned or not (pruned.actions or pruned.lines or pruned.problem):
        return ""
    lines = format_count(pruned.lines, "line")
    told = f"; exported and removed {format_count(pruned.actions, 'old action')} and {lines} of history"
    return f"{told}; {pruned.problem}" if pruned.problem else told


def _print_reports(reports: list[HealReport], output: Output) -> ExitCode:
    lines = [
        (
            _name_of_entry(entry),
            entry.action,
            format_time(entry.since),
            entry.status,
            entry.finding.value,
            entry.to,
            entry.provider,
        )
        for report in reports
        for entry in report.found
    ]
    for report in reports:
        counts = ", ".join(f"{number} {finding}" for finding, number in report.counts.items()) or "nothing to heal"
        dry = ", dry run" if report.dry_run else ""
        terminal.print_remark(
            f"sweep {report.number} at {format_time(report.at)}{dry}: {counts}{_describe_retention(report)}"
        )
    if not reports:
        terminal.print_remark(terminal.rewrite_commands("there was no sweep yet; begin one with: starter heal"))
    data = [report.model_dump(mode="json") for report in reports]
    paths = [entry.path for report in reports for entry in report.found]
    print_sheet(Sheet(data, HEADINGS, lines, paths, empty=""), output)  # the lines above have the errors
    return ExitCode.DONE
