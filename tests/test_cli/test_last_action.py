"""The last action on an object is the last that was admitted: not a refused request, nor a stranger's workflow."""

from __future__ import annotations

import json

import pytest
from temporalio.client import Client

from client.actions import ActionClient
from client.explaining import explain_object
from domain import wire
from domain.errors import Refused
from domain.model import Request
from starter.errors import ExitCode
from tests.test_cli.shell import Cli
from tests.user import User


async def test_wait_tells_the_outcome_of_the_last_action_though_a_request_was_refused_since(
    cli: Cli, mci: str, asking: ActionClient, ns: str
) -> None:
    assert (await cli(f"mci suspend {mci}")).code == ExitCode.DONE
    assert (await cli(f"mci resume {mci}")).code == ExitCode.DONE
    assert (await cli(f"mci resume {mci}")).code == ExitCode.REFUSED
    waited = await cli(f"wait {mci} -o json")
    assert waited.code == ExitCode.DONE, waited.err
    assert (json.loads(waited.out)["action"], json.loads(waited.out)["result"]) == ("resume", "succeeded")
    outcome = await asking.wait_for_outcome(f"ns:{ns}:mci:web")
    assert (outcome.action, outcome.result) == ("resume", "succeeded")


async def test_a_refused_request_on_nothing_is_still_told(user: User) -> None:
    ticket = await user.ask(user.mci("none"), "suspend")
    assert ticket.admission.refusal
    for run in (None, ticket.run):
        with pytest.raises(Refused, match="there is no such MCI"):
            await user.asking.wait_for_outcome(user.mci("none"), run)


async def test_a_failed_action_is_told_though_a_request_was_refused_since(user: User) -> None:
    await user.do(user.mci(), "create", spec=user.groups())
    await user.fault("fail", verb="suspend", message="out of order")
    failed = await user.do(user.mci(), "suspend")
    assert failed.result == "failed"
    assert "not allowed" in await user.refused(user.mci(), "resume")
    assert await user.asking.wait_for_outcome(user.mci()) == failed


async def test_explain_links_to_the_run_of_the_action_that_it_describes(user: User, client: Client) -> None:
    await user.do(user.mci(), "create", spec=user.groups())
    ticket = await user.admitted(user.mci(), "suspend")
    await user.asking.wait_for_outcome(user.mci(), ticket.run)
    await user.refused(user.mci(), "reboot")
    seen = await explain_object(user.asking, user.mci())
    assert (seen.workflow, seen.described_run, seen.run) == (user.mci(), ticket.run, "")
    of_member = await explain_object(user.asking, f"{user.mci()}:vm:aws-1")
    assert (of_member.workflow, of_member.described_run) == (user.mci(), ticket.run), "the group's action changed it"
    stranger = await client.start_workflow(
        wire.CONTROL_VMS, Request(path=user.mci(), action="resume"), id=user.mci(), task_queue="mistyped"
    )
    await stranger.terminate()
    assert (await explain_object(user.asking, user.mci())).described_run == ticket.run
    assert (await user.asking.wait_for_outcome(user.mci())).action == "suspend"
