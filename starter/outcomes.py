"""Prints what became of a request: the ticket of an action that runs, or the outcome of one that has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from domain.kinds import Kind
from domain.model import ActionResult, Outcome
from domain.paths import short_path
from domain.statetable import NONE
from domain.wire import object_path_of
from starter import terminal
from starter.errors import EXIT_OF_RESULT, ExitCode, PrintedError
from starter.output import Output, Sheet, print_sheet

if TYPE_CHECKING:
    from client.actions import Ticket


def print_ticket(ticket: Ticket, link: str, output: Output) -> ExitCode:
    """Prints which run carries a request out, for those who do not wait for it."""
    print_sheet(ticket_sheet(ticket, link), output)
    terminal.print_remark(f"under way; wait for it with: {terminal.rewrite_commands(f'starter wait {ticket.path}')}")
    return ExitCode.DONE


def print_outcome(kind: Kind, outcome: Outcome, output: Output) -> ExitCode:
    """Prints the outcome; failures and the reason go to stderr. Returns the exit code."""
    code, reason = EXIT_OF_RESULT[outcome.result], _message_without_result(outcome)
    print_sheet(outcome_sheet(kind, outcome), output)
    if outcome.message and output == "table" and code is ExitCode.DONE:
        terminal.print_message(f"  {outcome.message}")
    for trouble in outcome.troubles:
        terminal.print_remark(f"  {short_path(trouble.path)} is {trouble.status}: {trouble.error}", "red")
    if outcome.failed > len(outcome.troubles):
        terminal.print_remark(f"  and {outcome.failed - len(outcome.troubles)} more: see the status of each")
    if code is not ExitCode.DONE:
        reason = reason or f"{outcome.failed} of {outcome.done + outcome.failed} failed"
        hint = f"see why, and what can be done: starter explain {outcome.path}"
        terminal.print_error(PrintedError(f"{outcome.action} {outcome.result}", reason, hint, code, outcome.result))
    return code


def print_cancelled(kind: Kind, outcome: Outcome, output: Output) -> ExitCode:
    """Prints the outcome of an action for whoever asked it to end: that it was cancelled is a success."""
    print_sheet(outcome_sheet(kind, outcome), output)
    if reason := _message_without_result(outcome):
        terminal.print_remark(f"  {reason}")
    return ExitCode.DONE


def outcome_sheet(kind: Kind, outcome: Outcome) -> Sheet:
    """Formats the outcome as a table; with counts only if the action had targets besides the object."""
    outcome = outcome.model_copy(update={"status": kind.display_status(outcome.status)})
    cells = {"OBJECT": short_path(outcome.path), "ACTION": outcome.action}
    # That nothing exists is the aim of a removal; where it is not, a sentence tells it.
    cells |= {"RESULT": outcome.result, "STATUS": "-" if _left_nothing(outcome) else outcome.status}
    if outcome.done or outcome.failed or outcome.skipped:
        skipped = ", ".join(f"{number} {status}" for status, number in outcome.skipped.items())
        cells |= {"DONE": str(outcome.done), "FAILED": str(outcome.failed), "SKIPPED": skipped}
    return Sheet(outcome.model_dump(mode="json"), tuple(cells), [tuple(cells.values())], [outcome.path])


def ticket_sheet(ticket: Ticket, link: str) -> Sheet:
    """Formats a ticket as a table: the object, the action and its run."""
    action = ticket.admission.grant.action if ticket.admission.grant else ""
    path = object_path_of(ticket.path)
    data = {"path": path, "workflow": ticket.path, "action": action, "run": ticket.run, "link": link}
    return Sheet(data, ("OBJECT", "ACTION", "RUN"), [(short_path(path), action, ticket.run)], [path])


def _message_without_result(outcome: Outcome) -> str:
    """Returns the message without its leading result, which is printed already, and whether anything exists."""
    message = "" if outcome.message == outcome.result else outcome.message.removeprefix(f"{outcome.result}; ")
    return "; ".join(filter(None, [message, "nothing exists" if _left_nothing(outcome) else ""]))


def _left_nothing(outcome: Outcome) -> bool:
    return outcome.status == NONE and outcome.result is ActionResult.CANCELLED
