"""Actions on objects: compose the request, send it, wait for the outcome, print it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from domain import registry
from domain.dryrun import ActionPreview, DryRun, PlannedChange
from domain.errors import Category, Refused
from domain.model import ActionResult, Outcome, Request
from domain.paths import short_path
from domain.wire import SIMULATED, object_path_of
from starter import terminal
from starter.confirmation import confirm_request
from starter.errors import EXIT_OF_RESULT, ExitCode, PrintedError
from starter.naming import compose_request
from starter.output import Output, Sheet, print_sheet
from starter.progress import follow_action, waiting_with_timeout
from starter.session import open_client

if TYPE_CHECKING:
    from client.actions import ActionClient, Ticket
    from client.runs import ActionRun

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)?")
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}

CANCEL_HINT = (
    "start one: starter worker. It judges who may cancel, and the action cleans up there; or, with the rights of the "
    "namespace, ask for it now: temporal workflow cancel --workflow-id PATH; a worker carries it out once one runs"
)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ActionOptions:
    """The command-line options of every action."""

    wait: Annotated[bool, Parameter(negative="--no-wait", help="Wait for the end of the action.")] = True
    timeout: Annotated[str, Parameter(help="Stop waiting after this long, such as 90s or 5m. The action goes on.")] = ""
    dry_run: Annotated[bool, Parameter(negative="", help="Only say what would happen, or why not.")] = False
    force: Annotated[bool, Parameter(negative="", help="Whatever the status; ends the action that runs there.")] = False
    yes: Annotated[bool, Parameter(name=["--yes", "-y"], negative="", help="Do not ask for confirmation.")] = False
    reason: Annotated[str, Parameter(help="Why, for the history.")] = ""
    request_id: Annotated[str, Parameter(help="Asked twice with one ID: done once.")] = ""
    output: Annotated[Output, Parameter(name=["--output", "-o"], help="How to print the outcome.")] = "table"


async def run_action(
    kind: registry.Kind, path: str, action: str, options: ActionOptions, spec: dict[str, object] | None
) -> ExitCode:
    """Carries out one action, from the options to the exit code."""
    seconds = parse_duration(options.timeout)
    request = compose_request(
        path, action, spec=spec, force=options.force, reason=options.reason, request_id=options.request_id
    )
    if options.dry_run:
        return await dry_run_action(request, options.output)
    async with open_client() as client:
        if not options.yes and not await confirm_request(client, kind, request):
            terminal.print_message("not confirmed: nothing was changed")
            return ExitCode.FAILED
        async with waiting_with_timeout(path, seconds, admitted=False) as waiting:
            ticket = await client.request_action(request)
            waiting.admitted = True
            if ticket.admission.refusal:
                raise ticket.admission.refusal.to_error()
            return await _follow_ticket(client, ticket, options)


async def dry_run_action(request: Request, output: Output) -> ExitCode:
    """Dry run: prints what would happen, or the refusal that the action would get. Changes nothing."""
    async with open_client() as client:
        admission = await client.check_request(request)
    if admission.refusal:
        raise admission.refusal.to_error()
    print_sheet(_dry_run_sheet(request, admission), output)
    if admission.preview and output == "table":
        _print_preview(admission.preview)
    return ExitCode.DONE


async def wait_for_action(path: str, seconds: float | None, output: Output) -> ExitCode:
    """Waits for the action that runs on an object; without one, prints the outcome of the last."""
    async with open_client() as client, waiting_with_timeout(path, seconds):
        run = await _find_newest_run(client, path)
        _print_web_ui_url(client, path, run.run_id)
        obstacle, hint = run.describe_obstacle()
        if obstacle:
            terminal.print_message(f"{obstacle}; {hint}", "yellow")
        seen = await client.try_read_progress(path, run.run_id) if run.is_open and not obstacle else None
        outcome = await follow_action(client, path, run.run_id, seen.targets if seen else 0)
    return print_outcome(outcome, output)


async def cancel_action(path: str, seconds: float | None, output: Output) -> ExitCode:
    """Asks the running action to clean up and end, and waits for it."""
    async with open_client() as client, waiting_with_timeout(path, seconds):
        run = await _find_newest_run(client, path)
        if not run.is_open:
            raise Refused(Category.NOT_ALLOWED, f"no action runs on {path}", f"starter history {path}")
        obstacle, hint = run.describe_obstacle()
        if obstacle:
            raise Refused(Category.NOT_ALLOWED, f"{run.action} on {path} cannot clean up: {obstacle}", hint)
        _print_web_ui_url(client, path, run.run_id)
        await client.cancel_action(path)
        outcome = await follow_action(client, path, run.run_id, 0)
    if outcome.result is not ActionResult.CANCELLED:  # it ended before the cancel arrived
        return print_outcome(outcome, output)
    print_sheet(_outcome_sheet(outcome), output)
    if told := _message_without_result(outcome):
        terminal.print_remark(f"  {told}")
    return ExitCode.DONE


def print_outcome(outcome: Outcome, output: Output) -> ExitCode:
    """Prints the outcome; failures and the reason go to stderr. Returns the exit code."""
    print_sheet(_outcome_sheet(outcome), output)
    if outcome.message and output == "table" and EXIT_OF_RESULT[outcome.result] is ExitCode.DONE:
        terminal.print_message(f"  {outcome.message}")
    for trouble in outcome.troubles:
        terminal.print_remark(f"  {short_path(trouble.path)} is {trouble.status}: {trouble.error}", "red")
    if outcome.failed > len(outcome.troubles):
        terminal.print_remark(f"  and {outcome.failed - len(outcome.troubles)} more: see the status of each")
    if (code := EXIT_OF_RESULT[outcome.result]) is not ExitCode.DONE:
        reason = _message_without_result(outcome) or f"{outcome.failed} of {outcome.done + outcome.failed} failed"
        hint = f"see why, and what can be done: starter explain {outcome.path}"
        terminal.print_error(PrintedError(f"{outcome.action} {outcome.result}", reason, hint, code, outcome.result))
    return code


def _message_without_result(outcome: Outcome) -> str:
    """Returns the message without its leading result, which is printed already."""
    if outcome.message == outcome.result:
        return ""
    return outcome.message.removeprefix(f"{outcome.result}; ")


def parse_duration(text: str, option: str = "--timeout") -> float | None:
    """Parses `90`, `90s`, `5m` or `1h` into seconds; empty means no limit."""
    if not text:
        return None
    found = _DURATION.fullmatch(text)
    if not found or not float(found[1]):
        raise Refused(Category.INVALID, f"bad {option} {text[:40]!a}", "write it as 90s, 5m or 1h")
    return float(found[1]) * _UNITS[found[2] or "s"]


async def _follow_ticket(client: ActionClient, ticket: Ticket, options: ActionOptions) -> ExitCode:
    path, grant = ticket.path, ticket.admission.grant
    link = _print_web_ui_url(client, path, ticket.run)
    if ticket.admission.outcome:
        if grant is None:  # with a grant, the action ended within its admission
            terminal.print_remark("this request was carried out before; this is what became of it")
        return print_outcome(ticket.admission.outcome, options.output)
    if not options.wait:
        print_sheet(_ticket_sheet(ticket, link), options.output)
        terminal.print_remark(f"under way; wait for it with: {terminal.rewrite_as_typed(f'starter wait {path}')}")
        return ExitCode.DONE
    outcome = await follow_action(client, path, ticket.run, grant.targets if grant else 0)
    return print_outcome(outcome, options.output)


def _print_web_ui_url(client: ActionClient, path: str, run: str) -> str:
    """Prints and returns the action's URL in the Web UI."""
    if link := client.web_ui_url(path, run):
        terminal.print_remark(link, "dim")
    return link


async def _find_newest_run(client: ActionClient, path: str) -> ActionRun:
    """Returns the newest run of an action on a path; refuses if there never was one."""
    run = await client.newest_run(path)
    if run is None:
        hint = f"starter list {registry.kind_at(object_path_of(path)).name}"
        raise Refused(Category.NOT_FOUND, f"there was no action on {path} that Temporal remembers", hint)
    return run


def _outcome_sheet(outcome: Outcome) -> Sheet:
    """Formats the outcome as a table; with counts only if the action had targets besides the object."""
    shown = registry.kind_at(outcome.path).display_status(outcome.status)
    outcome = outcome.model_copy(update={"status": shown})
    cells = {"OBJECT": short_path(outcome.path), "ACTION": outcome.action}
    cells |= {"RESULT": outcome.result, "STATUS": outcome.status}
    if outcome.done or outcome.failed or outcome.skipped:
        skipped = ", ".join(f"{number} {status}" for status, number in outcome.skipped.items())
        cells |= {"DONE": str(outcome.done), "FAILED": str(outcome.failed), "SKIPPED": skipped}
    return Sheet(outcome.model_dump(mode="json"), tuple(cells), [tuple(cells.values())], [outcome.path])


def _ticket_sheet(ticket: Ticket, link: str) -> Sheet:
    action = ticket.admission.grant.action if ticket.admission.grant else ""
    path = object_path_of(ticket.path)
    data = {"path": path, "workflow": ticket.path, "action": action, "run": ticket.run, "link": link}
    return Sheet(data, ("OBJECT", "ACTION", "RUN"), [(short_path(path), action, ticket.run)], [path])


def _dry_run_sheet(request: Request, admission: DryRun) -> Sheet:
    """Formats a dry run as a table: statuses, number of targets, places. For programs, also each target."""
    grant = admission.grant
    if grant is None:
        return _outcome_sheet(admission.outcome) if admission.outcome else Sheet({}, (), [], [])
    preview = admission.preview or ActionPreview()
    shown = {change.placement: _place_of_change(change) for change in preview.changes}
    places = sorted({shown.get(chunk.placement, chunk.placement) for chunk in grant.chunks} | {*shown.values()} - {""})
    data = grant.model_dump(mode="json", include={"path", "action", "ruling", "came_from", "during", "then"})
    targets = grant.targets or preview.targets
    data |= {"places": places, "skipped": grant.skipped, **preview.model_dump(mode="json"), "targets": targets}
    headings = ("OBJECT", "ACTION", "RULING", "FROM", "WHILE", "THEN", "TARGETS", "SKIPPED", "PLACES")
    own = registry.kind_at(request.path).own_status
    way = (own(grant.came_from), grant.during, own(grant.then))
    line = (short_path(request.path), grant.action, grant.ruling, *way)
    skipped = ", ".join(f"{number} {status}" for status, number in grant.skipped.items())
    return Sheet(data, headings, [(*line, str(targets), skipped, ", ".join(places))], [request.path])


def _place_of_change(change: PlannedChange) -> str:
    """Returns where a target is, and whether that is only simulated."""
    return f"{change.placement}@{SIMULATED}" if change.placement and change.simulated else change.placement


def _print_preview(preview: ActionPreview) -> None:
    """Prints what a dry run found besides the object's own way: each target, changes of the spec, what is locked."""
    if preview.changes:
        headings = ("TARGET", "PLACE", "FROM", "WHILE", "THEN")
        rows = [
            (short_path(change.path), _place_of_change(change), change.came_from, change.during, change.then)
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
