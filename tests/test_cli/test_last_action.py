"""The last action on an object is the last that was admitted: not a refused request, nor a stranger's workflow."""

from __future__ import annotations

import json

import pytest
from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import Worker

from client.actions import ActionClient
from client.explaining import explain_object
from domain import wire
from domain.errors import Refused
from domain.model import Request
from starter.errors import ExitCode
from tests.test_cli.shell import Cli, assert_told
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


@workflow.defn(name="Stranger", sandboxed=False)
class StrangersWorkflow:
    """A workflow of somebody else, under an object's ID."""

    @workflow.run
    async def run(self) -> str:
        return "done"


async def test_a_strangers_workflow_that_completed_under_an_objects_id_is_not_its_last_action(
    user: User, client: Client, ns: str
) -> None:
    await user.do(user.mci(), "create", spec=user.groups())
    async with Worker(client, task_queue=f"strangers-{ns}", workflows=[StrangersWorkflow]):
        for path in (user.mci(), user.mci("none")):
            await client.execute_workflow("Stranger", id=path, task_queue=f"strangers-{ns}")
    outcome = await user.asking.wait_for_outcome(user.mci())
    assert (outcome.action, outcome.result) == ("create", "succeeded")
    assert not await user.asking.find_last_run(user.mci("none"))


async def test_wait_for_one_run_tells_its_outcome_though_others_came_since(cli: Cli, mci: str) -> None:
    first = json.loads((await cli(f"mci suspend {mci} --no-wait -o json")).out)["run"]
    assert (await cli(f"wait {mci}")).code == ExitCode.DONE
    assert (await cli(f"mci resume {mci}")).code == ExitCode.DONE
    told = json.loads((await cli(f"wait {mci} --run {first} -o json")).out)
    assert (told["action"], told["result"]) == ("suspend", "succeeded")


async def test_wait_for_a_run_that_is_not_of_this_object_is_refused(cli: Cli, mci: str, user: User) -> None:
    other = await user.admitted(user.mci("other"), "create", spec=user.groups())
    await user.asking.wait_for_outcome(user.mci("other"), other.run)
    for run in (other.run, "019a8f2e-5f0c-7d43-9a63-0a7f6c1f2b11", "nonsense"):
        ran = await cli(f"wait {mci} --run {run}")
        assert_told(ran, ExitCode.NOT_FOUND, f"there was no run {run} on ")
