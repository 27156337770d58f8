"""`starter policy test` and `policy replay`: try a policy file before the workers have it."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from domain.errors import Category, Refused
from starter import terminal
from starter.errors import ExitCode
from starter.flags import OutputOption
from starter.output import Sheet, format_time, print_sheet
from starter.stack import worker_settings

CasesFile = Annotated[str, Parameter(help="A YAML file of cases: subject, verb, path, expect (allow or deny).")]
PolicyFile = Annotated[str, Parameter(name="--policy", help="The policy file; by default RATCHET_POLICY_FILE.")]
NewPolicy = Annotated[str, Parameter(help="The policy file to try.")]


async def try_cases(cases: CasesFile, /, *, policy: PolicyFile = "", output: OutputOption = "table") -> ExitCode:
    """Ask a policy file about cases with expected answers. Exit code 1 if one is answered otherwise.

    Example: starter policy test examples/policy-cases.yaml --policy examples/policy.yaml
    """
    from workers.policycases import run_policy_cases

    file = policy or worker_settings().policy_file
    if not file:
        raise Refused(Category.INVALID, "there is no policy to test", "name it: --policy FILE, or RATCHET_POLICY_FILE")
    count, different = run_policy_cases(file, cases)
    if different or output != "table":
        headings = ("CASE", "SUBJECT", "VERB", "PATH", "EXPECTED", "ANSWER", "WHY")
        cells = [
            (str(one.number), one.subject, one.verb, one.path, one.expected, one.answer, one.why) for one in different
        ]
        print_sheet(
            Sheet([one.model_dump(mode="json") for one in different], headings, cells, [c[0] for c in cells]), output
        )
    if output == "table":
        terminal.print_narration(f"{count - len(different)} of {count} cases are answered as expected")
    return ExitCode.FAILED if different else ExitCode.DONE


async def replay_actions(new: NewPolicy, /, *, output: OutputOption = "table") -> ExitCode:
    """List the recorded actions that a policy file would have refused. It reads the store: RATCHET_STORE_URL.

    With -o json, one object per line, as they are found. Specs are not kept, so clouds that a policy forbids are not
    judged.

    Example: starter policy replay examples/policy.yaml
    """
    from workers.policycases import replay_against_policy

    count = 0
    for refusal in replay_against_policy(worker_settings(), new):
        count += 1
        if output == "table":
            by = f"{refusal.requested_by} for {refusal.on_behalf_of}" if refusal.on_behalf_of else refusal.requested_by
            line = f"{format_time(refusal.began_at)}  {refusal.action} {refusal.path} by {by or 'nobody named'}"
            terminal.print_data(f"{line}: {refusal.why}")
        else:
            terminal.print_data(refusal.model_dump_json())
    if output == "table":
        terminal.print_narration(f"{count or 'no'} recorded actions would have been refused")
    return ExitCode.DONE
