"""What a person can do to an action in Temporal's own UI or CLI, and what our commands say and do about it."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import (
    PauseWorkflowExecutionRequest,
    ResetWorkflowExecutionRequest,
    UnpauseWorkflowExecutionRequest,
)
from temporalio.client import Client, WorkflowFailureError

from activities.refusals import refusal_of_error
from client.actions import ActionClient
from domain.errors import Category
from domain.model import ActionResult
from starter.errors import ExitCode
from tests.patience import PATIENCE
from tests.test_cli.shell import Cli, Ran, assert_told
from tests.user import User
from workers import embedded

OPERATIONS = Path(__file__).parents[2] / "docs/operations.md"


async def holding(user: User) -> str:
    """The run of an MCI's creation that waits for a decision."""
    ticket = await user.admitted(user.mci(), "create", spec=user.groups(option="hold"))
    await user.until_status(user.mci(), "Prepared")
    return ticket.run


async def pause(client: Client, path: str, run: str) -> None:
    request = PauseWorkflowExecutionRequest(
        namespace=client.namespace, workflow_id=path, run_id=run, identity="eve", reason="lunch"
    )
    await client.workflow_service.pause_workflow_execution(request)


async def unpause(client: Client, path: str, run: str) -> None:
    request = UnpauseWorkflowExecutionRequest(namespace=client.namespace, workflow_id=path, run_id=run)
    await client.workflow_service.unpause_workflow_execution(request)


async def test_a_signal_is_not_told_as_sent_by_whoever_requested_the_action(
    cli: Cli, user: User, client: Client
) -> None:
    await holding(user)
    handle = client.get_workflow_handle(user.mci())
    await handle.signal("go")
    await handle.signal("continue", {"who": "eve"})
    async with asyncio.timeout(PATIENCE):
        while len([line for line in await user.history(user.mci()) if line.effect == "ignored"]) < 2:
            await asyncio.sleep(0.02)
    ignored = [line for line in await user.history(user.mci()) if line.effect == "ignored"]
    assert [line.requested_by for line in ignored] == ["", ""]
    told = [line for line in (await cli(f"history {user.mci()}")).out.splitlines() if "ignored: " in line]
    assert [re.split(r" {2,}", line)[1:6] for line in told] == [["User", "create", "Prepared", "-", "-"]] * 2
    assert (await user.history(user.mci()))[0].requested_by == "tester"


async def run_hint(hint: str) -> None:
    """Types the command of a hint, such as `unpause it: temporal workflow ...`."""
    words = shlex.split(hint.partition(": ")[2])
    assert words[0] == "temporal"
    command = [embedded.find_temporal_binary(), *words[1:]]
    await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True)


async def diagnosed(cli: Cli, words: str, path: str) -> Ran:
    """What the doctor says when it names a path: Temporal lists what happened a moment later."""
    deadline = time.monotonic() + PATIENCE
    while path not in (ran := await cli(words)).out + ran.err and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    return ran


async def test_a_paused_action_is_explained_and_every_command_says_what_helps(
    cli: Cli, user: User, client: Client, temporal_address: str
) -> None:
    run = await holding(user)
    await pause(client, user.mci(), run)
    why = "paused by eve at "
    hint = f"unpause it: temporal workflow unpause --workflow-id {user.mci()} --address {temporal_address}"
    explained = await cli(f"explain {user.mci()}")
    assert explained.code == ExitCode.DONE
    assert why in explained.out
    assert "lunch; it goes on when it is unpaused" in explained.out
    assert hint in explained.out
    assert "mci continue" not in explained.out, "nobody would hear it"
    for words, code in (
        (f"mci continue {user.mci()}", ExitCode.BUSY),
        (f"mci suspend {user.mci()}", ExitCode.BUSY),
        (f"mci delete {user.mci()} --force --yes", ExitCode.BUSY),
        (f"mci delete {user.mci()} --force --dry-run", ExitCode.BUSY),
        (f"cancel {user.mci()}", ExitCode.REFUSED),
    ):
        ran = await cli(words)
        assert_told(ran, code, why)
        assert ran.err.splitlines()[-1] == f"  hint: {hint}"
    seconds = 0.5
    while why not in (waited := await cli(f"wait {user.mci()} --timeout {seconds}s")).err and seconds < PATIENCE:
        seconds *= 2  # a busy machine takes longer to say it
    assert (waited.code, why in waited.err) == (ExitCode.STILL_WAITING, True)
    ill = await diagnosed(cli, "doctor -o json", user.mci())
    assert ill.code == ExitCode.UNREACHABLE
    [check] = [check for check in json.loads(ill.out) if user.mci() in check["found"]]
    assert (check["about"], check["mend"]) == ("action", hint)
    assert (await cli(f"verify {user.mci()}")).code == ExitCode.DONE, "it is open: no promise is broken"
    swept = await cli("heal --older-than 10ms --dry-run -o json")
    [entry] = [entry for entry in json.loads(swept.out)[0]["found"] if entry["path"] == user.mci()]
    assert entry["finding"] == "paused"
    await run_hint(hint)
    assert (await cli(f"mci continue {user.mci()} -o json")).code == ExitCode.DONE


async def test_the_runbook_for_a_paused_action_goes_as_it_is_written(
    cli: Cli, user: User, client: Client, temporal_address: str
) -> None:
    [_, _, unpausing, cancelling, ending] = read_runbook("an action is paused")
    for commands, expected in ((unpausing, "Prepared"), (cancelling, "Failed"), (ending, "Failed")):
        run = await holding(user)
        await pause(client, user.mci(), run)
        doctor = await diagnosed(cli, "doctor", user.mci())
        named = doctor.out + doctor.err
        assert user.mci() in named
        assert unpausing[0].replace("PATH", user.mci()) in named, "step 1 has the command of step 3"
        assert "paused by eve" in (await cli(f"explain {user.mci()}")).out
        for command in commands:
            words = command.replace("PATH", user.mci())
            if words.startswith("temporal"):
                await run_hint(f"do it: {words} --address {temporal_address}")
            else:
                assert (await cli(words.removeprefix("starter "))).code == ExitCode.DONE
        if commands is not unpausing:
            assert (await cli(f"wait {user.mci()}")).code == ExitCode.FAILED
        there = await cli(f"get {user.mci()} -o json")
        assert (json.loads(there.out)["status"] if there.out else "None") == expected
        if expected == "Prepared":
            assert (await cli(f"mci withdraw {user.mci()}")).code == ExitCode.DONE
            await cli(f"wait {user.mci()}")
        if (await cli(f"get {user.mci()}")).code == ExitCode.DONE:
            assert (await cli(f"mci delete {user.mci()} --yes")).code == ExitCode.DONE


def read_runbook(title: str) -> list[list[str]]:
    """The commands of each step of a runbook in docs/operations.md."""
    [text] = [part for part in OPERATIONS.read_text().split("\n### Runbook: ") if part.startswith(title)]
    rows = [line.split(" | ") for line in text.split("\n## ")[0].splitlines() if re.match(r"\| \d", line)]
    return [re.findall(r"`([^`]+)`", command) for _, command, _ in rows]


async def test_what_was_sent_to_a_paused_action_arrives_when_it_is_unpaused(user: User, client: Client) -> None:
    run = await holding(user)
    await pause(client, user.mci(), run)
    await client.get_workflow_handle(user.mci()).signal("continue")
    assert (await user.see(user.mci())).status == "Prepared"
    await unpause(client, user.mci(), run)
    assert (await user.asking.wait_for_outcome(user.mci(), run)).status.startswith("Running")


async def nobody_asks(*_: object) -> None:
    raise AssertionError("asked a workflow that cannot answer")


async def test_a_workflow_on_a_mistyped_queue_is_named_and_can_be_ended(
    cli: Cli, user: User, client: Client, temporal_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await user.do(user.mci(), "create", spec=user.groups())
    given = {"path": user.mci(), "action": "suspend"}
    await client.start_workflow("ControlVms", given, id=user.mci(), task_queue="actoins")
    why = "the workflow ControlVms on the queue 'actoins', not on 'actions': no worker of ours takes it"
    hint = f"end it: temporal workflow terminate --workflow-id {user.mci()} --address {temporal_address}"
    with monkeypatch.context() as patched:
        patched.setattr(ActionClient, "read_progress", nobody_asks)
        explained = await cli(f"explain {user.mci()}")
    assert why in explained.out
    assert hint in explained.out
    assert_told(await cli(f"mci suspend {user.mci()}"), ExitCode.BUSY, why)
    assert_told(await cli(f"cancel {user.mci()}"), ExitCode.REFUSED, why)
    ill = json.loads((await diagnosed(cli, "doctor -o json", user.mci())).out)
    assert [check["mend"] for check in ill if user.mci() in check["found"]] == [hint]
    await run_hint(hint)
    assert (await cli(f"mci suspend {user.mci()}")).code == ExitCode.DONE


async def test_a_workflow_of_a_mistyped_type_is_named_and_can_be_ended(
    cli: Cli, user: User, client: Client, temporal_address: str
) -> None:
    await user.do(user.mci(), "create", spec=user.groups())
    given = {"path": user.mci(), "action": "suspend"}
    await client.start_workflow("ControlVm", given, id=user.mci(), task_queue="actions")
    why = "the workflow ControlVm, a type that does not exist (ControlVms does): no worker of ours takes it"
    hint = f"end it: temporal workflow terminate --workflow-id {user.mci()} --address {temporal_address}"
    explained = await cli(f"explain {user.mci()}")
    assert why in explained.out
    assert hint in explained.out
    assert_told(await cli(f"mci suspend {user.mci()}"), ExitCode.BUSY, why)
    ill = json.loads((await diagnosed(cli, "doctor -o json", user.mci())).out)
    assert [check["mend"] for check in ill if user.mci() in check["found"]] == [hint]
    await run_hint(hint)
    assert (await cli(f"mci suspend {user.mci()}")).code == ExitCode.DONE


@pytest.mark.parametrize("given", ["suspend", [1], {"path": "default/web"}, {"paht": 1}])
async def test_a_start_with_data_of_another_shape_fails_and_names_the_fields(
    user: User, client: Client, given: object
) -> None:
    with pytest.raises(WorkflowFailureError) as caught:
        await client.execute_workflow("ControlVms", given, id=user.mci(), task_queue="actions")
    told = str(caught.value.cause)
    assert told.startswith("UnfitMessage: the data is not valid: ")
    assert told.endswith("; see docs/temporal.md")
    assert "path" in told
    assert "pydantic" not in told


async def test_a_stranger_with_the_id_of_an_object_that_does_not_exist_is_named(
    cli: Cli, user: User, client: Client
) -> None:
    await client.start_workflow("ControlVms", {}, id=user.mci(), task_queue="actoins")
    ran = await cli(f"explain {user.mci()}")
    assert_told(ran, ExitCode.NOT_FOUND, "there is no such MCI")
    assert "on the queue 'actoins'" in ran.err
    await client.get_workflow_handle(user.mci()).terminate()


@pytest.mark.parametrize(
    ("kind", "workflow_id", "told", "hint"),
    [
        (
            "CreateMci",
            "{mci}",
            "CreateMci does not suspend {mci}, but ControlVms does",
            "start it with the workflow type ControlVms",
        ),
        ("ControlVms", "{mci}-2", "the workflow ID must be the object's path: {mci}", "start it with that ID"),
        ("ControlVms", "{mci}:vm:x", "the workflow ID must be the object's path: {mci}", "start it with that ID"),
    ],
)
async def test_a_start_with_the_wrong_type_or_id_is_refused_and_changes_nothing(
    user: User, client: Client, kind: str, workflow_id: str, told: str, hint: str
) -> None:
    await user.do(user.mci(), "create", spec=user.groups())
    given = {"path": user.mci(), "action": "suspend"}
    with pytest.raises(WorkflowFailureError) as caught:
        await client.execute_workflow(kind, given, id=workflow_id.format(mci=user.mci()), task_queue="actions")
    refusal = refusal_of_error(caught.value.cause)
    assert refusal
    assert (refusal.category, refusal.message, refusal.hint) == (Category.INVALID, told.format(mci=user.mci()), hint)
    assert (await user.see(user.mci())).status == "Running:2 (R:2/2)"


async def test_a_terminated_action_is_explained_and_healed(cli: Cli, user: User, client: Client) -> None:
    await user.do(user.mci(), "create", spec=user.groups())
    await user.fault("hang", verb="suspend", seconds=60)
    ticket = await user.admitted(user.mci(), "suspend")
    await user.until_delayed(user.vm("aws-1"), user.vm("aws-2"))
    await client.get_workflow_handle(user.mci()).terminate("by hand")
    outcome = await user.asking.wait_for_outcome(user.mci(), ticket.run)
    assert (outcome.result, outcome.message[:23]) == (ActionResult.FAILED, "terminated from outside")
    explained = await cli(f"explain {user.mci()}")
    assert "its workflow was ended from outside (terminated)" in explained.out
    assert "starter heal" in explained.out
    broken = await cli(f"verify {user.mci()} -o json")
    assert broken.code == ExitCode.FAILED
    assert {finding["path"] for finding in json.loads(broken.out)["findings"]} >= {user.mci()}
    healed = json.loads((await cli("heal -o json")).out)[0]["found"]
    assert user.mci() in {entry["path"] for entry in healed if entry["finding"] == "healed"}
    await user.heal_faults()
    assert (await user.see(user.mci())).status == "Running:2 (R:2/2)"
    assert (await cli(f"verify {user.mci()}")).code == ExitCode.DONE


async def test_a_reset_sends_the_request_once_more(cli: Cli, asking: ActionClient, user: User, client: Client) -> None:
    run = await holding(user)
    request = ResetWorkflowExecutionRequest(
        namespace=client.namespace,
        workflow_execution=WorkflowExecution(workflow_id=user.mci(), run_id=run),
        workflow_task_finish_event_id=3,
        request_id=user.mci(),
        reason="by hand",
    )
    later = (await client.workflow_service.reset_workflow_execution(request)).run_id
    async with asyncio.timeout(PATIENCE):
        while not (seen := await asking.try_read_progress(user.mci(), later)) or not seen.step.startswith("holding"):
            await asyncio.sleep(0.05)
    explained = await cli(f"explain {user.mci()}")
    assert "holding: waits for continue or withdraw" in explained.out
    assert (await cli(f"mci continue {user.mci()}")).code == ExitCode.DONE
    assert (await asking.wait_for_outcome(user.mci(), run)).status.startswith("Running"), "the first run leads to it"


async def test_a_cancelled_action_is_explained(cli: Cli, user: User, client: Client) -> None:
    run = await holding(user)
    await client.get_workflow_handle(user.mci()).cancel()
    assert (await user.asking.wait_for_outcome(user.mci(), run)).result is ActionResult.CANCELLED
    explained: Any = json.loads((await cli(f"explain {user.mci()} -o json")).out)
    assert explained["status"] == "Failed"
    assert any("cancelled" in fact["text"] for fact in explained["remarks"])
    assert explained["allowed"] == ["delete"]
    assert explained["next"] == f"starter mci delete {user.ns}/web"
    assert (await cli(f"verify {user.mci()}")).code == ExitCode.DONE
