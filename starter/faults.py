"""`starter cloud fault`: adds rules to the simulated clouds' fault script, replaces, lists and clears them."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from domain import wire
from domain.faults import Fault, FaultScript
from domain.validation import refuse_validation_errors
from starter.errors import ExitCode
from starter.flags import OutputOption
from starter.kinds import SpecFile, read_spec_file
from starter.output import Output, Sheet, print_sheet
from starter.session import open_client

HEADINGS = ("KIND", "CSP", "REGION", "VM", "VERB", "TIMES", "MESSAGE")

app = App(name="fault", help="What the simulated clouds do wrong.")


@app.command
async def add(fault: Annotated[Fault, Parameter(name="*")], *, output: OutputOption = "table") -> ExitCode:
    """Add one rule to the script. Region and VM are globs; the VM's matches its name or its path.

    A rule applies to --times VMs, or until it is cleared.

    Example: starter cloud fault add fail --vm front-1 --verb suspend --times 1
    """
    return await _send_script(FaultScript(faults=[fault]), output)


@app.command(name="set")
async def set_script(*, file: SpecFile, output: OutputOption = "table") -> ExitCode:
    """Replace the script by the one in a file.

    Example: starter cloud fault set -f examples/faults.yaml
    """
    with refuse_validation_errors("the script is not valid", "there is an example in examples/faults.yaml"):
        script = FaultScript.model_validate(read_spec_file(file))
    return await _send_script(script.model_copy(update={"replace": True}), output)


@app.command(name="list")
async def list_rules(*, output: OutputOption = "table") -> ExitCode:
    """List the rules in the order in which they are tried.

    Example: starter cloud fault list -o yaml
    """
    return await _send_script(FaultScript(), output)


@app.command
async def clear(*, output: OutputOption = "table") -> ExitCode:
    """Remove all rules: the clouds work normally again.

    Example: starter cloud fault clear
    """
    return await _send_script(FaultScript(replace=True), output)


async def _send_script(script: FaultScript, output: Output) -> ExitCode:
    async with open_client() as client:
        now = await client.run_query(wire.CLOUD_FAULTS, script, FaultScript)
    cells = [
        (rule.kind, rule.csp, rule.region, rule.vm, rule.verb, str(rule.times or "always"), rule.message)
        for rule in now.faults
    ]
    data = now.model_dump(mode="json", include={"faults"}, exclude_defaults=True)
    print_sheet(Sheet(data or {"faults": []}, HEADINGS, cells, [rule.kind for rule in now.faults]), output)
    return ExitCode.DONE
