"""Dry runs: print what an action would do, or the refusal that it would get. Nothing is changed."""

from __future__ import annotations

from domain.dryrun import ActionPreview, DryRun, PlannedChange
from domain.kinds import Kind
from domain.model import Request
from domain.paths import short_path
from domain.wire import SIMULATED
from starter import terminal
from starter.errors import ExitCode
from starter.outcomes import outcome_sheet
from starter.output import Output, Sheet, print_sheet
from starter.session import open_client


async def dry_run_action(kind: Kind, request: Request, output: Output) -> ExitCode:
    """Prints what would happen; raises the refusal that the action would get."""
    async with open_client() as client:
        admission = await client.check_request(request)
    if admission.refusal:
        raise admission.refusal.to_error()
    print_sheet(_dry_run_sheet(kind, request, admission), output)
    if admission.preview and output == "table":
        _print_preview(admission.preview)
    return ExitCode.DONE


def _dry_run_sheet(kind: Kind, request: Request, admission: DryRun) -> Sheet:
    """Formats a dry run as a table: statuses, number of targets, places. For programs, also each target."""
    grant = admission.grant
    if grant is None:
        return outcome_sheet(kind, admission.outcome) if admission.outcome else Sheet({}, (), [], [])
    preview = admission.preview or ActionPreview()
    shown = {change.placement: _place_of_change(change) for change in preview.changes}
    places = sorted({shown.get(chunk.placement, chunk.placement) for chunk in grant.chunks} | {*shown.values()} - {""})
    data = grant.model_dump(mode="json", include={"path", "action", "ruling", "came_from", "during", "then"})
    targets = grant.targets or preview.targets
    data |= {"places": places, "skipped": grant.skipped, **preview.model_dump(mode="json"), "targets": targets}
    headings = ("OBJECT", "ACTION", "RULING", "FROM", "WHILE", "THEN", "TARGETS", "SKIPPED", "PLACES")
    way = (kind.display_own_status(grant.came_from), grant.during, kind.display_own_status(grant.then))
    line = (short_path(request.path), grant.action, grant.ruling, *way)
    skipped = ", ".join(f"{number} {status}" for status, number in grant.skipped.items())
    return Sheet(data, headings, [(*line, str(targets), skipped, ", ".join(places))], [request.path])


def _place_of_change(change: PlannedChange) -> str:
    """Returns where a target is, and whether that is only simulated."""
    return f"{change.placement}@{SIMULATED}".lstrip("@") if change.simulated else change.placement


def _print_preview(preview: ActionPreview) -> None:
    """Prints what a dry run found besides the object's own way: each target, changes of the spec, what is locked."""
    if preview.changes:
        headings = ("TARGET", "PLACE", "ACTION", "FROM", "WHILE", "THEN")
        rows = [
            (
                *(short_path(change.path), _place_of_change(change), change.action),
                *(change.came_from, change.during, change.then),
            )
            for change in preview.changes
        ]
        terminal.print_data("")
        print_sheet(Sheet([], headings, rows, []), "table")
    if preview.targets > len(preview.changes):
        terminal.print_data(f"and {preview.targets - len(preview.changes)} more")
    for name, (before, after) in preview.spec_changes.items():
        terminal.print_data(terminal.escape_controls(f"spec: {name}: {before} becomes {after}"))
    if preview.locks:
        terminal.print_data(f"locked meanwhile: {', '.join(map(short_path, preview.locks))}, with all that is below")
