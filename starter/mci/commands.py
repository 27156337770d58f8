"""Commands on MCIs that are not actions: status with --refresh, reconcile, continue, withdraw."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from domain import registry
from domain.errors import format_count
from domain.mci.messages import CONTINUE, WITHDRAW, HoldDecision, SurveyReport, SurveyRequest
from domain.paths import expand_path
from starter import actions, reads, terminal
from starter.errors import ExitCode
from starter.flags import OutputOption, WatchOption
from starter.kinds import CliCommand, ObjectArg, set_command_help
from starter.output import Sheet, print_sheet
from starter.session import open_client
from starter.watch import run_once_or_watch

Refresh = Annotated[
    bool, Parameter(negative="", help="Ask the clouds first, about the VMs that may have changed by themselves.")
]
DryRunOption = Annotated[bool, Parameter(negative="", help="Only say what would be changed.")]
Wait = Annotated[bool, Parameter(negative="--no-wait", help="Wait for the end of the creation.")]
HoldTimeout = Annotated[
    str, Parameter(name="--timeout", help="Stop waiting after this long, such as 90s or 5m. The creation goes on.")
]
Reason = Annotated[str, Parameter(help="Why, for the history.")]


def extend_app(app: App) -> None:
    """Adds these commands to the noun `mci`."""
    noun = app["mci"]
    del noun["status"]  # replaced by ours, with --refresh
    noun.command(status)
    noun.command(reconcile)
    go_on = "Continue an MCI that holds: its VMs are created."
    noun.command(set_command_help(_decision_command(CONTINUE), go_on, "mci continue default/web"), name=CONTINUE)
    give_up = "Withdraw an MCI that holds: what was prepared for it is undone."
    noun.command(set_command_help(_decision_command(WITHDRAW), give_up, "mci withdraw default/web"), name=WITHDRAW)


async def status(
    target: ObjectArg, /, *, refresh: Refresh = False, watch: WatchOption = False, output: OutputOption = "table"
) -> ExitCode:
    """The status of one MCI and of each VM.

    Example: starter mci status default/web --refresh
    """
    path = _mci_path(target)
    if refresh:
        _print_survey(await _request_survey(SurveyRequest(path=path)))
    return await run_once_or_watch(watch, lambda: reads.print_status(path, output))


async def reconcile(target: ObjectArg, /, *, dry_run: DryRunOption = False, output: OutputOption = "table") -> ExitCode:
    """Compare the records of an MCI with the clouds: adopt lost VMs, mark missing ones, report orphans.

    Example: starter mci reconcile default/web --dry-run
    """
    report = await _request_survey(SurveyRequest(path=_mci_path(target), reconcile=True, dry_run=dry_run))
    word = "would be corrected" if dry_run else "corrected"
    lines = [
        *((word, each) for each in report.corrected),
        *(("orphan", orphan) for orphan in report.orphans),
        *(("not asked", error) for error in report.errors),
    ]
    sheet = Sheet(
        report.model_dump(mode="json"), ("FOUND", "WHAT"), lines, [_mci_path(target)], "records and clouds agree"
    )
    print_sheet(sheet, output)
    _print_survey(report)
    return ExitCode.PARTLY if report.errors else ExitCode.DONE


def _decision_command(word: str) -> CliCommand:
    async def decide(
        target: ObjectArg,
        /,
        *,
        wait: Wait = True,
        within: HoldTimeout = "",
        reason: Reason = "",
        output: OutputOption = "table",
    ) -> ExitCode:
        from starter.mci import requests  # imported late: it loads Temporal's SDK

        path, decision = _mci_path(target), HoldDecision(reason=reason)
        seconds = actions.parse_duration(within)
        async with open_client() as client:
            await requests.send_decision(client, path, word, decision, seconds or requests.DECISION_SECONDS)
        if not wait:
            terminal.print_remark(f"sent; wait for it with: {terminal.rewrite_commands(f'starter wait {path}')}")
            return ExitCode.DONE
        return await actions.wait_for_action(path, seconds, output, is_own_cancel=word == WITHDRAW)

    return decide


async def _request_survey(wish: SurveyRequest) -> SurveyReport:
    from starter.mci import requests

    async with open_client() as client:
        return await requests.run_survey(client, wish)


def _print_survey(report: SurveyReport) -> None:
    """Prints a survey's summary: calls, VMs asked about, changes."""
    told = f"asked the clouds about {format_count(report.asked, 'VM')} in {format_count(report.calls, 'call')}"
    told += f"; {format_count(report.saved, 'VM')} needed none"
    changes = [f"{number} {word}" for word, number in report.changes.items()]
    if changes:
        told += f"; changed: {', '.join(changes)}"
    if report.stale:
        told += f"; {report.stale} are as last known: {'; '.join(report.errors[:3])}"
    if report.orphans_found:
        told += f"; {format_count(report.orphans_found, 'orphan')}"
    terminal.print_remark(told)


def _mci_path(target: str) -> str:
    return expand_path(target, registry.find_kind("mci").scope)
