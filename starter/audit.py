"""`starter audit`: checks and exports the sealed history, straight from the store."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from domain.errors import format_count
from starter import terminal
from starter.errors import ExitCode
from starter.stack import worker_settings

app = App(name="audit", help="The sealed history: check that nothing was changed, and export it for others to check.")
Anchor = Annotated[str, Parameter(help="A head that an earlier check printed: it must still be in the chain.")]
After = Annotated[int, Parameter(help="Only seals after this number.")]


@app.command
async def verify(*, anchor: Anchor = "") -> ExitCode:
    """Check every sealed line of the history; it needs RATCHET_STORE_URL and the right to read.

    Example: starter audit verify
    """
    from workers.sealedhistory import verify_history

    report = verify_history(worker_settings(), anchor)
    for violation in report.violations:
        terminal.print_message(violation, "red")
    sealed = f"{format_count(report.lines, 'line')} in {format_count(report.seals, 'seal')}"
    terminal.print_data(f"{sealed}, {report.removed} of them removed by retention")
    if report.head:
        terminal.print_data(f"head {report.head}")
    return ExitCode.FAILED if report.violations else ExitCode.DONE


@app.command
async def export(*, after: After = 0) -> ExitCode:
    """Print the seals with their lines as JSON, one seal per line: docs/audit.md says how to check them.

    Example: starter audit export > audit.jsonl
    """
    from workers.sealedhistory import export_history

    for record in export_history(worker_settings(), after):
        terminal.print_data(record)
    return ExitCode.DONE
