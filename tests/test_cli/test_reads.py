"""Commands that read, as tables for people and as JSON for programs."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
import yaml

from client import reading
from client.actions import ActionClient
from domain import registry, rendering
from domain.paths import expand_path
from providers.simulated.tables import vms
from starter import terminal
from starter.errors import ExitCode
from starter.output import Sheet, align_columns, fit_table
from starter.verify import INVARIANT_TEXTS, NEXT_STEPS
from tests.patience import PATIENCE
from tests.test_cli.shell import EXAMPLES, Cli, Clouds
from workers.service import WorkerService


async def test_the_status_of_an_mci_counts_its_vms_and_has_them(cli: Cli, mci: str) -> None:
    assert (await cli(f"vm suspend {mci}/front-1")).code == ExitCode.DONE
    found = json.loads((await cli(f"mci status {mci} -o json")).out)
    vms = found.pop("vms")
    counts = dict.fromkeys(
        ("failed", "terminated", "creating", "suspending", "resuming", "rebooting", "terminating", "undefined"), 0
    )
    assert found == {
        "path": expand_path(mci, ("ns", "mci")),
        "name": "web",
        "status": "Partial-Running:5 (R:5/6)",
        "counts": {"total": 6, "suspended": 1, "running": 5, **counts},
        "target_status": None,
        "target_action": None,
        "error": "",
    }
    front = next(vm for vm in vms if vm["name"] == "front-1")
    assert len(vms) == 6
    assert (front["status"], front["target_action"], front["sub_group"]) == ("Suspended", None, "front")
    assert (front["csp"], front["region"]) == ("aws", "eu-central-1")


READS = (
    *("mci status {mci}", "vm status {mci}/front-1", "get {mci}", "list vm --prefix {mci}", "mci list"),
    *("history {mci}", "history {mci}/front-1", "locks", "explain {mci}", "check {mci} suspend", "verify {mci}"),
    *("mci suspend {mci}", "mci suspend {mci}", "mci resume {mci} --dry-run", "mci reconcile {mci}", "wait {mci}"),
    *("mci delete {mci} --yes", "heal --dry-run", "heal report", "doctor", "connections", "cloud fault list"),
    *("orphans list", "states vm", "mci status nowhere/web", "mci fly {mci}", "mci suspend {mci} --quickly"),
)


async def test_data_and_errors_for_programs_are_json_with_one_spelling_of_keys_and_null_for_nothing(
    cli: Cli, mci: str
) -> None:
    for words in READS:
        ran = await cli(f"{words.format(mci=mci)} -o json")
        for key, value in keys_of(json.loads(ran.out)) if ran.out else ():
            assert re.fullmatch(r"[a-z][a-z0-9_]*", key), (words, key)
            assert value != "None", (words, key)
        if not ran.out or (ran.code and ran.err):
            [line] = ran.err.splitlines()
            problem = json.loads(line)
            assert set(problem) == {"type", "title", "detail", "hint", "exit_code"}, words
            assert problem["exit_code"] == ran.code > 0
            assert problem["type"].startswith("urn:ratchet:")
        else:
            assert ran.err == "", words


def keys_of(data: Any) -> Iterator[tuple[str, Any]]:
    """Every key with its value; what users wrote themselves has their spelling."""
    for item in data if isinstance(data, list) else []:
        yield from keys_of(item)
    for key, value in data.items() if isinstance(data, dict) else ():
        yield key, value
        if key not in ("spec", "info", "limits", "counts", "skipped", "changes"):
            yield from keys_of(value)


async def test_the_status_is_a_table_of_its_vms_for_people(cli: Cli, mci: str) -> None:
    lines = (await cli(f"mci status {mci}")).out.splitlines()
    assert lines[0] == f"{mci}  Running:6 (R:6/6)"
    assert [line.split()[0] for line in lines[3:]] == ["back-1", "back-2", "data-1", "front-1", "front-2", "front-3"]
    assert (await cli(f"vm status {mci}/data-1 -o yaml")).out.splitlines()[1] == "name: data-1"


async def test_every_page_is_listed_and_a_cut_is_said(
    cli: Cli, mci: str, ns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "PAGE_SIZE", 2)
    everything = await cli(f"list vm --prefix {mci} -o name")
    assert len(everything.out.splitlines()) == 6
    assert everything.err == ""
    some = await cli(f"vm list --prefix {ns} --limit 3 -o name")
    assert some.out.splitlines() == everything.out.splitlines()[:3]
    assert "cut at 3" in some.err
    assert json.loads((await cli(f"list mci --prefix ns:{ns} -o json")).out)[0]["path"] == f"ns:{ns}:mci:web"
    assert (await cli("list mci --prefix nobody -o name")).out == ""
    nothing = await cli("list mci --prefix nobody")
    assert (nothing.out, nothing.err) == ("", "none\n")  # no headings over nothing


async def test_history_says_who_did_what_and_why(cli: Cli, mci: str) -> None:
    assert (await cli(f"mci suspend {mci} --reason", "night")).code == ExitCode.DONE
    lines = json.loads((await cli(f"history {mci} -o json")).out)
    assert [(line["action"], line["source"], line["to"]) for line in lines[-2:]] == [
        ("suspend", "Running", "Suspending"),
        ("suspend", "Suspending", "Running"),
    ]
    assert lines[-1]["message"] == "succeeded; MCI is Suspended:6 (R:0/6)"  # its own status does not tell
    assert lines[-1]["reason"] == "night"
    assert lines[-1]["requested_by"]
    assert "night" in (await cli(f"history {mci}")).out


async def test_locks_show_who_holds_what(cli: Cli, clouds: Clouds, mci: str, ns: str) -> None:
    await clouds.stall(ns)
    await cli(f"vm suspend {mci}/front-1 --no-wait")
    held = json.loads((await cli(f"locks {mci} -o json")).out)
    path = expand_path(mci, ("ns", "mci"))
    assert [(lock["path"], lock["mode"], lock["action"]) for lock in held] == [
        (path, "IX", "suspend"),
        (f"{path}:vm:front-1", "X", "suspend"),
    ]
    await clouds.relent()
    await cli(f"wait {mci}/front-1")
    assert json.loads((await cli(f"locks {mci} -o json")).out) == []


async def test_get_takes_a_path_or_its_short_form(cli: Cli, mci: str) -> None:
    path = expand_path(mci, ("ns", "mci"))
    for words in (mci, path):
        assert yaml.safe_load((await cli(f"get {words} -o yaml")).out)["path"] == path
    shown = (await cli(f"get {mci}")).out
    assert shown.splitlines()[0].split() == ["path", path]
    assert "\nspec\n  description: A small web shop" in shown
    assert "\ninfo\n  generation: " in shown


@pytest.mark.parametrize("kind", registry.KINDS)
async def test_the_law_of_a_kind_needs_no_server(cli: Cli, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    table = registry.KINDS[kind].table
    assert (await cli(f"states {kind} -o markdown")).out == rendering.markdown_table(table)
    assert (await cli(f"states {kind} -o mermaid")).out == rendering.mermaid_diagram(table)
    assert len(json.loads((await cli(f"states {kind} -o json")).out)) == len(table.rows)
    assert (await cli(f"states {kind}")).out.splitlines()[1].split()[0] == table.rows[0].action


async def test_on_a_terminal_many_statuses_to_begin_with_stand_below_each_other(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "terminal_width", lambda: 100)
    told = (await cli("states vm")).out.splitlines()
    assert max(map(len, told)) < 100
    first = next(number for number, line in enumerate(told) if line.startswith("delete "))
    assert told[first].split() == ["delete", "Running,", "Suspended,", "Terminating", "(none)", "Failed", "Group"]
    assert told[first + 1].split() == ["Terminated,", "Failed,", "Undefined"]


async def test_faults_are_set_from_words_and_files(cli: Cli, clouds: Clouds) -> None:
    added = await cli("cloud fault add fail --vm front-9 --verb suspend --times 2 --message no -o json")
    assert json.loads(added.out)["faults"] == [
        {"kind": "fail", "vm": "front-9", "verb": "suspend", "times": 2, "message": "no"}
    ]
    assert (await cli("cloud fault set -o name -f", str(EXAMPLES / "faults.yaml"))).out == "fail\nslow\n"
    assert "front-1" in (await cli("cloud fault list")).out
    assert json.loads((await cli("cloud fault clear -o json")).out) == {"faults": []}
    wrong = await cli("cloud fault set -f -", stdin="faults: [{kind: lie, verb: create}]")
    assert (wrong.code, "lie is about terminate" in wrong.err) == (ExitCode.USAGE, True)


async def test_text_from_others_cannot_move_the_cursor(cli: Cli, asking: ActionClient, mci: str) -> None:
    assert (await cli(f"mci suspend {mci} --reason", "\x1b[2Jgone")).code == ExitCode.DONE
    shown = (await cli(f"history {mci}")).out
    assert "\x1b" not in shown
    assert "\\x1b[2Jgone" in shown


def test_columns_are_aligned_and_nothing_is_cut() -> None:
    assert align_columns([("A", "B"), ("long name", ""), ("x", "y" * 200)])[1:] == [
        "long name  -",
        f"x          {'y' * 200}",
    ]


async def test_verify_says_what_to_do_about_a_broken_promise(cli: Cli, stack: WorkerService, mci: str) -> None:
    assert set(NEXT_STEPS) == set(INVARIANT_TEXTS)
    path = expand_path(mci, ("ns", "mci"))
    change = sa.update(vms).where(vms.c.path == f"{path}:vm:front-1").values(state="stopped")
    await stack.cloud_database.run_transaction(lambda connection: connection.execute(change))
    ran = await cli(f"verify {mci}")
    assert (ran.code, "is Running, but stopped in its cloud" in ran.out) == (ExitCode.FAILED, True)
    assert [line.split()[-1] for line in ran.err.splitlines() if line[:3] in ("I3 ", "I7 ")] == ["kept", "BROKEN"]
    assert "next, for I7: correct records of VMs by their cloud: starter mci reconcile PATH" in ran.err
    assert (await cli(f"mci reconcile {mci}")).code == ExitCode.DONE
    assert (await cli(f"verify {mci}")).code == ExitCode.DONE


def test_a_status_that_is_not_there_is_a_dash_in_every_table() -> None:
    headings, line = ("NAME", "STATUS", "FROM", "TO", "MESSAGE"), ("None", "None", "None", "Creating", "None")
    assert fit_table(Sheet([], headings, [line], []), None)[1].split() == ["None", "-", "-", "Creating", "None"]
    assert fit_table(Sheet([], headings, [line], []), 20) == ["NAME None", "  TO       Creating", "  MESSAGE  None"]


def test_a_terminal_that_is_too_narrow_gets_the_cells_below_each_other() -> None:
    sheet = Sheet([], ("NAME", "STATUS", "ERROR"), [("front-1", "Running", ""), ("b", "Failed", "no room")], [])
    wide = align_columns([sheet.headings, *sheet.lines])
    assert fit_table(sheet, None) == fit_table(sheet, len(wide[2])) == wide
    assert fit_table(sheet, 20) == [
        "NAME front-1",
        "  STATUS  Running",
        "NAME b",
        "  STATUS  Failed",
        "  ERROR   no room",
    ]


async def test_a_path_with_colons_is_no_emoji(cli: Cli) -> None:
    told = (await cli("history x/y/z")).err
    assert "ns:x:mci:y:vm:z" in told


def test_hints_use_the_command_that_the_user_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATCHET_COMMAND", "python3 run.py")
    assert terminal.rewrite_commands("wait for it: starter wait x") == "wait for it: python3 run.py wait x"
    assert terminal.rewrite_commands("or all: starter --help") == "or all: python3 run.py --help"
    named = "ns:default:mci:starter is Failed, and default/starter too"  # by people who know nothing of us
    assert terminal.rewrite_commands(named) == named


async def test_help_uses_the_command_that_the_user_typed(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATCHET_COMMAND", "python3 run.py")
    for words in ("", "mci", "mci suspend", "states"):
        told = (await cli(f"{words} --help")).out
        assert f"Usage: python3 run.py {words}" in told
        assert "starter" not in told


async def test_explain_says_why_and_what_can_be_done(cli: Cli, mci: str) -> None:
    await cli(f"mci suspend {mci} --reason", "cheaper at night")
    told = (await cli(f"explain {mci}")).out
    assert "is Suspended:6 (R:0/6), since" in told
    assert "because    suspend ended, asked for by" in told
    assert ": succeeded; MCI is Suspended:6 (R:0/6)\n           reason given: cheaper at night\n" in told
    assert "running    nothing" in told
    scale = "scale-out --sub-group SUB-GROUP, scale-in --sub-group SUB-GROUP"
    allowed = f"resume, terminate, {scale}, delete"
    assert f"you can    {allowed}; such as: starter mci resume {mci}" in told


async def test_what_is_gone_is_found_by_its_short_name(cli: Cli, mci: str) -> None:
    assert (await cli(f"mci delete {mci} --yes")).code == ExitCode.DONE
    assert "delete" in (await cli(f"history {mci}")).out
    gone = await cli(f"explain {mci}")
    assert (gone.code, "delete removed it at" in gone.err) == (ExitCode.NOT_FOUND, True), gone.err


async def test_explain_tells_what_a_running_action_waits_for(
    cli: Cli, mci: str, clouds: Clouds, asking: ActionClient
) -> None:
    await clouds.stall(mci.split("/")[0])
    await cli(f"mci reboot {mci} --no-wait")
    told = (await cli(f"explain {mci}")).out
    await clouds.relent()
    assert "running    reboot since" in told
    assert "waits for  operate vms" in told
    assert f"you can    wait for it: starter wait {mci}; end it: starter cancel {mci}" in told
    assert (await cli(f"wait {mci}")).code == 0
    await clouds.fail("*:vm:data-1")
    await cli(f"mci reboot {mci}")
    assert "trouble    " in (await cli(f"explain {mci}")).out


async def test_explain_says_what_an_mci_that_holds_waits_for(cli: Cli, ns: str) -> None:
    created = await cli(f"mci create {ns}/held --no-wait -f", str(EXAMPLES / "mci-hold.yaml"))
    assert created.code == ExitCode.DONE, created.err
    async with asyncio.timeout(PATIENCE):
        while "is Prepared" not in (told := (await cli(f"explain {ns}/held")).out):
            await asyncio.sleep(0.1)
    assert f"go on: starter mci continue {ns}/held; give up: starter mci withdraw {ns}/held" in told
    withdrawn = await cli(f"mci withdraw {ns}/held")
    assert (withdrawn.code, "the preparation was undone; nothing exists" in withdrawn.err) == (ExitCode.DONE, True)
    waited = await cli(f"wait {ns}/held")
    assert waited.code == ExitCode.FAILED
    assert waited.out.splitlines()[-1].split() == [f"{ns}/held", "create", "cancelled", "-"]
    assert "withdraw by" in waited.err
    assert "the preparation was undone; nothing exists" in waited.err
    assert "None" not in waited.out + waited.err


async def test_the_history_of_a_group_says_that_it_rests_where_its_members_have_the_status(cli: Cli, mci: str) -> None:
    await cli(f"mci suspend {mci}")
    *_, asked, ended = (await cli(f"history {mci}")).out.splitlines()
    assert "at rest     Suspending" in asked
    assert "Suspending  at rest" in ended
    assert "succeeded; MCI is Suspended:6" in ended
    dry = (await cli(f"mci delete {mci} --dry-run")).out
    assert "at rest  Terminating  -  " in dry
    assert "\nphase            at rest\n" in (await cli(f"get {mci}")).out
    assert json.loads((await cli(f"get {mci} -o json")).out)["phase"] == "at rest"
    assert json.loads((await cli(f"get {mci}/front-1 -o json")).out)["phase"] == "Suspended", "its own status"
