"""Actions from the command line: waiting, not waiting, interrupting, coming back, dry runs."""

from __future__ import annotations

import asyncio
import json
import signal

import pytest
import yaml

from client.actions import ActionClient
from domain.machines.ports import HypervisorOrder
from domain.paths import expand_path
from domain.ports import VmFacts, VmOrder
from domain.wire import split_placement
from starter import actions, terminal
from starter.errors import ExitCode
from tests.patience import PATIENCE
from tests.stack import family_of
from tests.test_cli.shell import EXAMPLES, Cli, Clouds, assert_told, ended, heard
from workers.machines import MachineFamily
from workers.service import WorkerService


def path_of(short: str) -> str:
    return expand_path(short, ("ns", "mci"))


async def test_the_life_of_an_mci_as_a_user_types_it(cli: Cli, mci: str) -> None:
    for action, status in (
        ("suspend", "Suspended:6 (R:0/6)"),
        ("resume", "Running:6 (R:6/6)"),
        ("reboot", "Running:6 (R:6/6)"),
        ("terminate", "Terminated:6 (R:0/6)"),
    ):
        ran = await cli(f"mci {action} {mci} --yes -o json")
        assert ran.code == ExitCode.DONE
        assert json.loads(ran.out)["status"] == status


async def test_an_outcome_is_printed_as_table_json_yaml_or_name(cli: Cli, mci: str) -> None:
    vm = f"{mci}/front-1"
    table = await cli(f"vm suspend {vm}")
    assert table.out.splitlines()[1].split() == [vm, "suspend", "succeeded", "Suspended", "1", "0", "-"]
    assert yaml.safe_load((await cli(f"vm resume {vm} -o yaml")).out)["status"] == "Running"
    assert (await cli(f"vm reboot {vm} -o name")).out == f"{path_of(mci)}:vm:front-1\n"


async def test_progress_goes_to_stderr_and_shows_the_status_as_it_changes(
    cli: Cli, clouds: Clouds, mci: str, ns: str
) -> None:
    await clouds.stall(ns)
    process = await cli.start(f"mci suspend {mci} -o name")
    await heard(process, f"{mci}: Suspending:6 (R:0/6)  0/6 done")
    await clouds.relent()
    ran = await ended(process)
    assert (ran.code, ran.out) == (ExitCode.DONE, f"{path_of(mci)}\n")


async def test_what_is_not_allowed_says_what_is(cli: Cli, mci: str) -> None:
    ran = await cli(f"mci resume {mci}")
    assert ran.code == ExitCode.REFUSED
    assert "resume is not allowed for VM under Running (6 of them)" in ran.err
    assert "allowed now: suspend, reboot, terminate" in ran.err


async def test_action_words_may_be_written_large(cli: Cli, mci: str) -> None:
    assert (await cli(f"check {mci} SUSPEND")).code == ExitCode.DONE


async def test_a_partly_failed_action_exits_7_and_names_who_failed(cli: Cli, clouds: Clouds, mci: str) -> None:
    await clouds.fail(f"{path_of(mci)}:vm:front-1")
    ran = await cli(f"mci suspend {mci} -o json")
    assert (ran.code, json.loads(ran.out)["failed"]) == (ExitCode.PARTLY, 1)
    [trouble] = json.loads(ran.out)["troubles"]
    assert (trouble["path"], trouble["status"]) == (f"{path_of(mci)}:vm:front-1", "Running")
    assert "out of order" in trouble["error"]
    explained = (await cli(f"explain {mci}")).out
    assert f"{mci}/front-1 is Running: " in explained
    assert "out of order" in explained


async def test_a_failed_action_exits_1(cli: Cli, clouds: Clouds, mci: str) -> None:
    await clouds.fail(f"{path_of(mci)}:vm:front-1")
    ran = await cli(f"vm suspend {mci}/front-1")
    assert ran.code == ExitCode.FAILED
    assert f"starter explain {path_of(mci)}:vm:front-1" in ran.err


async def test_a_dry_run_and_a_check_change_nothing(cli: Cli, asking: ActionClient, mci: str) -> None:
    before = (await cli(f"get {mci} -o json")).out
    for words in (f"mci suspend {mci} --dry-run", f"check {mci} suspend"):
        ran = await cli(f"{words} -o json")
        told = json.loads(ran.out)
        assert (ran.code, told["ruling"], told["targets"], len(told["places"])) == (ExitCode.DONE, "go", 6, 3)
    assert (await cli(f"mci resume {mci} --dry-run")).code == ExitCode.REFUSED
    assert (await cli(f"get {mci} -o json")).out == before


async def test_creating_can_be_tried_first(cli: Cli, asking: ActionClient, ns: str) -> None:
    spec = str(EXAMPLES / "mci-demo.yaml")
    assert (await cli(f"check ns:{ns}:mci:new create -f", spec)).code == ExitCode.DONE
    tried = await cli(f"mci create {ns}/new --dry-run -f", spec)
    assert tried.code == ExitCode.DONE
    assert [line.split()[1] for line in tried.out.splitlines() if "/front-1 " in line] == ["aws/eu-central-1@simulated"]
    assert (await cli(f"get {ns}/new")).code == ExitCode.NOT_FOUND


async def test_a_check_sees_the_action_that_runs(cli: Cli, clouds: Clouds, mci: str, ns: str) -> None:
    await clouds.stall(ns)
    assert (await cli(f"mci suspend {mci} --no-wait")).code == ExitCode.DONE
    ran = await cli(f"check {mci} reboot")
    assert (ran.code, "suspend since" in ran.err) == (ExitCode.BUSY, True)
    await clouds.relent()
    assert (await cli(f"wait {mci}")).code == ExitCode.DONE


async def test_an_action_asked_for_without_waiting_can_be_waited_for(
    cli: Cli, clouds: Clouds, mci: str, ns: str
) -> None:
    await clouds.stall(ns)
    ran = await cli(f"mci suspend {mci} --no-wait")
    assert (ran.code, ran.out.splitlines()[1].split()[1]) == (ExitCode.DONE, "suspend")
    assert f"starter wait {path_of(mci)}" in ran.err
    attached = asyncio.create_task(cli(f"wait {mci} -o json"))
    await clouds.relent()
    assert json.loads((await attached).out)["status"] == "Suspended:6 (R:0/6)"
    assert json.loads((await cli(f"wait {mci} -o json")).out)["result"] == "succeeded"  # over: how it ended


async def test_the_old_word_for_wait_means_the_same_and_is_not_a_family_verb(cli: Cli, mci: str) -> None:
    """`attach` is also what is done with a disk: as a command of its own it goes with the next version."""
    waited, attached = await cli(f"wait {mci} -o json"), await cli(f"attach {mci} -o json")
    assert (waited.code, attached.code) == (ExitCode.DONE, ExitCode.DONE)
    assert attached.out == waited.out
    shown = (await cli("--help")).out
    assert ("wait" in shown, "attach" in shown) == (True, False)
    help_of_disks = (await cli("disk attach --help")).out
    assert "machine" in help_of_disks
    assert help_of_disks != (await cli("wait --help")).out


async def test_when_the_timeout_passes_the_action_goes_on(cli: Cli, clouds: Clouds, mci: str, ns: str) -> None:
    await clouds.stall(ns)
    seconds, words = 0.5, f"mci suspend {mci} --request-id once --timeout"
    while "not known whether" in (ran := await cli(f"{words} {seconds}s")).err and seconds < PATIENCE:
        seconds *= 2  # a busy machine takes longer to admit it
    assert (ran.code, ran.out) == (ExitCode.STILL_WAITING, "")
    assert f"starter wait {path_of(mci)}" in ran.err
    await clouds.relent()
    assert (await cli(f"wait {mci}")).code == ExitCode.DONE


async def test_after_ctrl_c_the_action_goes_on(cli: Cli, clouds: Clouds, mci: str, ns: str) -> None:
    await clouds.stall(ns)
    process = await cli.start(f"mci suspend {mci}")
    await heard(process, "Suspending")
    process.send_signal(signal.SIGINT)
    ran = await ended(process)
    assert (ran.code, ran.out) == (ExitCode.INTERRUPTED, "")
    assert f"the action goes on. Wait for it again with: starter wait {path_of(mci)}" in ran.err
    assert "Traceback" not in ran.err
    await clouds.relent()
    assert (await cli(f"wait {mci}")).code == ExitCode.DONE


async def test_a_cancelled_action_ends(cli: Cli, clouds: Clouds, mci: str, ns: str) -> None:
    await clouds.stall(ns)
    assert (await cli(f"mci suspend {mci} --no-wait")).code == ExitCode.DONE
    ran = await cli(f"cancel {mci} -o json")
    told = json.loads(ran.out)
    assert (ran.code, told["action"], told["result"]) == (ExitCode.DONE, "suspend", "cancelled"), ran.err
    again = await cli(f"cancel {mci}")
    assert (again.code, "no action runs" in again.err) == (ExitCode.REFUSED, True)


async def test_one_request_id_is_carried_out_once(cli: Cli, mci: str) -> None:
    assert (await cli(f"mci suspend {mci} --request-id once")).code == ExitCode.DONE
    again = await cli(f"mci suspend {mci} --request-id once")
    assert (again.code, again.out.splitlines()[1].split()[2]) == (ExitCode.DONE, "succeeded")
    assert "carried out before" in again.err


async def test_force_takes_over_from_the_action_that_runs(cli: Cli, clouds: Clouds, mci: str, ns: str) -> None:
    await clouds.stall(ns)
    assert (await cli(f"mci suspend {mci} --no-wait")).code == ExitCode.DONE
    assert (await cli(f"mci terminate {mci}")).code == ExitCode.BUSY
    forced = asyncio.create_task(cli(f"mci terminate {mci} --force --yes -o json"))
    await clouds.relent()
    assert json.loads((await forced).out)["status"] == "Terminated:6 (R:0/6)"


@pytest.mark.parametrize(("answer", "code"), [(True, ExitCode.DONE), (False, ExitCode.FAILED)])
async def test_a_person_is_asked_before_anything_ends_for_good(
    cli: Cli, mci: str, monkeypatch: pytest.MonkeyPatch, answer: bool, code: int
) -> None:
    asked: list[str] = []

    def confirmed(question: str) -> bool:
        asked.append(question)
        return answer

    monkeypatch.setattr(terminal, "is_interactive", lambda: True)
    monkeypatch.setattr(terminal, "ask_confirmation", confirmed)
    assert (await cli(f"mci suspend {mci}")).code == ExitCode.DONE
    assert asked == []
    assert (await cli(f"mci terminate {mci}")).code == code
    assert asked == [f"terminate {mci} with 6 VMs? This cannot be undone."]
    assert (await cli(f"mci terminate {mci} --yes")).code == ExitCode.DONE
    if answer:
        assert (await cli(f"mci terminate {mci}")).code == ExitCode.DONE
        assert len(asked) == 1, "there is nothing left to terminate, and nothing to ask"


async def test_a_pipe_is_refused_what_cannot_be_undone_unless_it_says_yes(cli: Cli, mci: str) -> None:
    for answer in ("n\n", "y\n", ""):
        ran = await cli(f"mci delete {mci}", stdin=answer)
        assert_told(ran, ExitCode.REFUSED, f"delete of {mci} cannot be undone, and nobody can be asked here")
        assert ran.err.splitlines()[0] == "error: not confirmed: nothing was changed"
        assert ran.err.splitlines()[-1] == "  hint: the same command with --yes"
    told = json.loads((await cli(f"mci delete {mci} -o json", stdin="")).err)
    assert (told["type"], told["exit_code"]) == ("urn:ratchet:not-confirmed", ExitCode.REFUSED)
    assert (await cli(f"mci status {mci}")).out.startswith(f"{mci}  Running:6 (R:6/6)")
    assert (await cli(f"mci delete {mci} --yes")).code == ExitCode.DONE


async def test_the_recycle_bin_needs_no_question(cli: Cli, ns: str) -> None:
    assert (await cli(f"account create {ns}")).code == ExitCode.DONE
    assert (await cli(f"cloudspace create {ns}/dev")).code == ExitCode.DONE
    assert (await cli(f"cloudspace delete {ns}/dev")).code == ExitCode.DONE
    assert (await cli(f"cloudspace restore {ns}/dev")).code == ExitCode.DONE
    assert (await cli(f"cloudspace destroy {ns}/dev")).code == ExitCode.REFUSED


@pytest.mark.parametrize(("text", "seconds"), [("", None), ("90", 90), ("1.5s", 1.5), ("5m", 300), ("2h", 7200)])
def test_durations_have_units(text: str, seconds: float | None) -> None:
    assert actions.parse_duration(text) == seconds


async def test_an_orphan_is_adopted_by_the_id_that_the_list_shows(
    cli: Cli, mci: str, stack: WorkerService, ns: str
) -> None:
    csp, region = split_placement((await stack.inventory.read_object(f"ns:{ns}:mci:web:vm:front-1")).placement)
    order = VmOrder(f"ns:{ns}:mci:web:vm:front-9", f"late {ns}", epoch=1)
    (made,) = await stack.simulated[csp].perform_orders("create", region, [order])
    assert isinstance(made, VmFacts)
    listed = json.loads((await cli(f"orphans list {mci} -o json")).out)
    assert [each["id"] for each in listed["orphans"]] == [made.cloud_id]
    assert_told(await cli("orphans adopt nothing"), ExitCode.NOT_FOUND, "no orphan is called nothing")
    adopted = await cli(f"orphans adopt {made.cloud_id} --yes")
    assert adopted.code == ExitCode.DONE, adopted.err
    assert (await stack.inventory.read_object(order.path)).info["cloud_id"] == made.cloud_id
    assert (await cli(f"orphans list {mci}")).code == ExitCode.DONE


async def test_an_orphan_of_another_family_is_listed_in_the_same_columns_and_removed_but_not_adopted(
    cli: Cli, stack: WorkerService, ns: str
) -> None:
    image = f"image:{ns}-late"
    hypervisor = family_of(stack, MachineFamily).hypervisor
    await hypervisor.perform_order("create", HypervisorOrder(image, "image", f"late {image}"))
    listed = await cli(f"orphans list {image}")
    assert listed.code == ExitCode.FAILED
    assert listed.out.split("\n")[0].split() == ["PATH", "PROVIDER", "ID", "STATE", "SINCE", "ORDER", "RECORD"]
    assert listed.out.split("\n")[1].split() == [image, "hypervisor", image, "ready", "-", "-", "none"]
    told = f"{image} cannot be adopted: the hypervisor keeps no spec to record"
    assert_told(await cli(f"orphans adopt {image} --yes"), ExitCode.REFUSED, told)
    assert_told(await cli(f"orphans remove {image} --yes --force"), ExitCode.USAGE, "an orphan takes no --force")
    removed = await cli(f"orphans remove {image} --yes")
    assert (removed.code, "was ready at the hypervisor, and was removed" in removed.err) == (ExitCode.DONE, True)
    assert_told(await cli(f"orphans remove {image} --yes"), ExitCode.NOT_FOUND, f"no orphan is called {image}")
    assert (await cli(f"orphans list {image}")).code == ExitCode.DONE
