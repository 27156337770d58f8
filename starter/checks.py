"""Checks of `starter doctor`: what was looked at, what was found, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

from domain.errors import RatchetError
from starter import terminal
from starter.errors import ExitCode, to_printed_error
from starter.output import Output, Sheet, print_sheet


@dataclass(frozen=True)
class DoctorCheck:
    """One check. `mend` says how to correct the problem; empty if there is none."""

    about: str
    found: str
    mend: str = ""


def run_check(about: str, look: Callable[[], object], good: str = "") -> DoctorCheck:
    """Returns what a look finds, or `good` in its place; if it fails, why, and what to do about it."""
    try:
        found = look()
    except RatchetError as error:
        return failed_check(about, error)
    return DoctorCheck(about, good or str(found))


def failed_check(about: str, error: RatchetError) -> DoctorCheck:
    """Returns the check that ended with this error, whose hint says what to do."""
    found = to_printed_error(error)
    return DoctorCheck(about, found.why, found.next)


def print_checks(
    findings: list[DoctorCheck], output: Output, bad: str = "wrong", code: ExitCode = ExitCode.UNREACHABLE
) -> ExitCode:
    """Prints checks, those that are not good with what to do about them. Returns `code` if there is such a one."""
    lines = [(bad if finding.mend else "ok", finding.about, finding.found) for finding in findings]
    print_sheet(
        Sheet(
            [asdict(finding) for finding in findings], ("STATE", "WHAT", "FOUND"), lines, [f.about for f in findings]
        ),
        output,
    )
    ill = [finding for finding in findings if finding.mend]
    for check in ill:
        terminal.print_remark(f"{check.about}: {check.found}", "red")
        terminal.print_remark(f"  hint: {terminal.rewrite_commands(check.mend)}")
    return code if ill else ExitCode.DONE
