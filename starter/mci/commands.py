"""Commands on MCIs that are not actions: status with --refresh, reconcile, continue, withdraw."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from domain import registry
from domain.mci.messages import CONTINUE, WITHDRAW, Decision, Survey, SurveyReport
from domain.paths import expand
from starter import actions, reads, terminal
from starter.errors import Exit
from starter.kinds import CliCommand, ObjectArg, described
from starter.mci.documents import mci_document
from starter.naming import user
from starter.output import OutputOption, Sheet, show
from starter.session import session
from starter.watching import WatchOption, watching

Refresh = Annotated[
    bool, Parameter(negative="", help="Ask the clouds first, about the VMs that may have changed by themselves.")
]
DryRun = Annotated[bool, Parameter(negative="", help="Only say what would be changed.")]
Wait = Annotated[bool, Parameter(negative="--no-wait", help="Wait for the end of the creation.")]
HoldTimeout = Annotated[
    str, Parameter(name="--timeout", help="Stop waiting after this long, such as 90s or 5m. The creation goes on.")
]
Reason = Annotated[str, Parameter(help="Why, for the history.")]


def extend(app: App) -> None:
    """Adds these commands to the noun `mci`."""
    noun = app["mci"]
    del noun["status"]  # replaced by ours, with --refresh
    noun.command(status)
    noun.command(reconcile)
    go_on = "Continue an MCI that holds: its VMs are created."
    noun.command(described(_deciding(CONTINUE), go_on, "mci continue default/web"), name=CONTINUE)
    give_up = "Withdraw an MCI that holds: what was prepared for it is undone."
    noun.command(described(_deciding(WITHDRAW), give_up, "mci withdraw default/web"), name=WITHDRAW)


async def status(
    target: ObjectArg, /, *, refresh: Refresh = False, watch: WatchOption = False, output: OutputOption = "table"
) -> Exit:
    """The status of one MCI and of each VM.

    Example: starter mci status default/web --refresh
    """
    path = _path(target)
    if refresh:
        _tell(await _survey(Survey(path=path)))
    return await watching(watch, lambda: reads.status(registry.kind("mci"), path, output, mci_document))


async def reconcile(target: ObjectArg, /, *, dry_run: DryRun = False, output: OutputOption = "table") -> Exit:
    """Compare the records of an MCI with the clouds: adopt lost VMs, mark missing ones, report orphans.

    Example: starter mci reconcile default/web --dry-run
    """
    report = await _survey(Survey(path=_path(target), reconcile=True, dry_run=dry_run))
    word = "would be corrected" if dry_run else "corrected"
    lines = [
        *((word, each) for each in report.corrected),
        *(("orphan", each) for each in report.orphans),
        *(("not asked", each) for each in report.errors),
    ]
    sheet = Sheet(report.model_dump(mode="json"), ("FOUND", "WHAT"), lines, [_path(target)], "records and clouds agree")
    show(sheet, output)
    _tell(report)
    return Exit.PARTLY if report.errors else Exit.DONE


def _deciding(word: str) -> CliCommand:
    async def decide(
        target: ObjectArg,
        /,
        *,
        wait: Wait = True,
        within: HoldTimeout = "",
        reason: Reason = "",
        output: OutputOption = "table",
    ) -> Exit:
        from starter.mci import steering  # imported late: it loads Temporal's SDK

        path, decision = _path(target), Decision(requested_by=user(), reason=reason)
        async with session() as asking:
            await steering.decide(asking, path, word, decision)
        if not wait:
            terminal.say(f"sent; wait for it with: {terminal.command(f'starter wait {path}')}")
            return Exit.DONE
        return await actions.wait(path, actions.duration(within), output)

    return decide


async def _survey(wish: Survey) -> SurveyReport:
    from starter.mci import steering

    async with session() as asking:
        return await steering.survey(asking, wish)


def _tell(report: SurveyReport) -> None:
    """Prints a survey's summary: calls, VMs asked about, changes."""
    told = f"asked the clouds about {report.asked} VMs in {report.calls} calls; {report.saved} VMs needed none"
    changes = [f"{number} {word}" for word, number in report.changes.items()]
    if changes:
        told += f"; changed: {', '.join(changes)}"
    if report.stale:
        told += f"; {report.stale} are as last known: {'; '.join(report.errors[:3])}"
    if report.orphans_found:
        told += f"; {report.orphans_found} orphans"
    terminal.say(told)


def _path(target: str) -> str:
    return expand(target, registry.kind("mci").scope)
