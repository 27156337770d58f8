"""Actions on objects: compose the request, send it, wait for the outcome, print it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from domain import registry
from domain.errors import Category, Refused
from domain.model import ActionResult
from domain.wire import object_path_of
from starter import terminal
from starter.confirmation import confirm_request
from starter.dryrun import dry_run_action
from starter.errors import ExitCode
from starter.naming import compose_request
from starter.outcomes import print_cancelled, print_outcome, print_ticket
from starter.output import Output
from starter.progress import follow_action, waiting_with_timeout
from starter.session import open_client

if TYPE_CHECKING:
    from client.actions import ActionClient, Ticket

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
        return await dry_run_action(kind, request, options.output)
    async with open_client() as client:
        if not options.yes and not await confirm_request(client, kind, request):
            terminal.print_message("not confirmed: nothing was changed")
            return ExitCode.FAILED
        async with waiting_with_timeout(path, seconds, admitted=False) as waiting:
            ticket = await client.request_action(request)
            waiting.admitted = True
            if ticket.admission.refusal:
                raise ticket.admission.refusal.to_error()
            return await _follow_ticket(client, kind, ticket, options)


async def wait_for_action(
    path: str, seconds: float | None, output: Output, run: str = "", is_own_cancel: bool = False
) -> ExitCode:
    """Waits for one run, or for the action that runs on an object; without one, prints the outcome of the last.

    `is_own_cancel`: the caller has asked it to end, so that its end as cancelled is a success.
    """
    kind = registry.kind_at(object_path_of(path))
    async with open_client() as client, waiting_with_timeout(path, seconds):
        if not (last := run or await client.find_last_run(path)):
            raise _no_action_refusal(kind, path)
        if run and not await client.knows_run(path, run):
            raise Refused(Category.NOT_FOUND, f"there was no run {run[:40]} on {path}", f"starter history {path}")
        terminal.print_link(client.web_ui_url(path, last))
        newest = await client.newest_run(path)
        obstacle, hint = newest.describe_obstacle() if newest else ("", "")
        if obstacle:
            terminal.print_message(f"{obstacle}; {hint}", "yellow")
        is_at_work = newest and newest.is_open and not obstacle and newest.run_id == last
        seen = await client.try_read_progress(path, last) if is_at_work else None
        # Without a run: the newest may be a request that is still to be refused.
        outcome = await follow_action(client, kind, path, run, seen.targets if seen else 0)
    if is_own_cancel and outcome.result is ActionResult.CANCELLED:
        return print_cancelled(kind, outcome, output)
    return print_outcome(kind, outcome, output)


async def cancel_action(path: str, seconds: float | None, output: Output) -> ExitCode:
    """Asks the running action to clean up and end, and waits for it."""
    kind = registry.kind_at(object_path_of(path))
    async with open_client() as client, waiting_with_timeout(path, seconds):
        if (run := await client.newest_run(path)) is None:
            raise _no_action_refusal(kind, path)
        if not run.is_open:
            raise Refused(Category.NOT_ALLOWED, f"no action runs on {path}", f"starter history {path}")
        obstacle, hint = run.describe_obstacle()
        if obstacle:
            raise Refused(Category.NOT_ALLOWED, f"{run.action} on {path} cannot clean up: {obstacle}", hint)
        terminal.print_link(client.web_ui_url(path, run.run_id))
        await client.cancel_action(path)
        outcome = await follow_action(client, kind, path, run.run_id, 0)
    if outcome.result is not ActionResult.CANCELLED:  # it ended before the cancel arrived
        return print_outcome(kind, outcome, output)
    return print_cancelled(kind, outcome, output)


def parse_duration(text: str, option: str = "--timeout") -> float | None:
    """Parses `90`, `90s`, `5m` or `1h` into seconds; empty means no limit."""
    if not text:
        return None
    found = _DURATION.fullmatch(text)
    if not found or not float(found[1]):
        raise Refused(Category.INVALID, f"bad {option} {text[:40]!a}", "write it as 90s, 5m or 1h")
    return float(found[1]) * _UNITS[found[2] or "s"]


async def _follow_ticket(client: ActionClient, kind: registry.Kind, ticket: Ticket, options: ActionOptions) -> ExitCode:
    admission, link = ticket.admission, client.web_ui_url(ticket.path, ticket.run)
    terminal.print_link(link)
    if not (admission.outcome or options.wait):
        return print_ticket(ticket, link, options.output)
    if admission.outcome and admission.grant is None:  # with a grant, the action ended within its admission
        terminal.print_remark("this request was carried out before; this is what became of it")
    targets = admission.grant.targets if admission.grant else 0
    outcome = admission.outcome or await follow_action(client, kind, ticket.path, ticket.run, targets)
    return print_outcome(kind, outcome, options.output)


def _no_action_refusal(kind: registry.Kind, path: str) -> Refused:
    message = f"there was no action on {path} that Temporal remembers"
    return Refused(Category.NOT_FOUND, message, f"starter list {kind.name}")
