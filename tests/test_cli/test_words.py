"""Messages and hints are true, and offer only what the user can do."""

from __future__ import annotations

import json
from typing import cast

import pytest
import yaml

from client.actions import ActionClient, Ticket
from client.errors import NoWorker
from client.outcomes import conflict_refusal
from domain import registry
from domain.model import ActionResult, Admission, Grant, Outcome, Request
from domain.statetable import Ruling
from starter import actions, outcomes, reads
from starter.app import build_cli_app
from starter.command import run_command
from starter.errors import ExitCode
from starter.extensions import find_extension
from starter.helppage import EXIT_CODES
from starter.output import format_json, format_yaml
from tests.cases import every_case

MACHINE = "account:acme:cloudspace:dev:machine:db"
KIND = registry.find_kind("machine")
MIGRATING = f"{MACHINE}::migrate"
GRANT = Grant(epoch=1, path="x", action="end", ruling=Ruling.GO, came_from="ACTIVE", during="TERMINATING", then="None")
ENDED = Outcome(
    path=MACHINE, action="stop", result=ActionResult.SUCCEEDED, status="HALTED", message="2 start again on enable"
)


@every_case("kind", registry.KINDS.values(), ids=lambda kind: kind.name)
def test_a_hint_offers_only_what_people_can_ask_for(kind: registry.Kind) -> None:
    hint = kind.table.describe_allowed_actions(kind.table.statuses, kind.requestable_actions).removeprefix(
        "allowed now: "
    )
    offered = {word for part in hint.split("; with --force: ") for word in part.split(", ")} - {"nothing"}
    assert offered <= {verb.action for verb in kind.verbs if not verb.is_internal} - set(kind.table.hidden_actions)


def test_neither_the_clock_s_start_nor_a_migration_is_offered() -> None:
    assert "start" not in registry.find_kind("lease").requestable_actions
    assert "migrate" not in registry.find_kind("machine").requestable_actions
    assert "discard" not in registry.find_kind("disk").requestable_actions


def test_a_conflict_with_hidden_work_names_its_own_workflow_and_offers_no_force() -> None:
    refusal = conflict_refusal(Request(path=MACHINE, action="migrate"), None)
    assert f"on {MIGRATING}: " in refusal.message
    assert refusal.hint.endswith(f"wait for it: starter wait {MIGRATING}")


@pytest.mark.parametrize(("action", "offered"), [("stop", True), ("create", False)])
def test_force_is_offered_where_it_takes_over(action: str, offered: bool) -> None:
    assert ("--force" in conflict_refusal(Request(path=MACHINE, action=action), None).hint) is offered
    assert "--force" not in conflict_refusal(Request(path=MACHINE, action=action, force=True), None).hint


def test_the_receipt_of_hidden_work_names_the_object_that_there_is() -> None:
    sheet = outcomes.ticket_sheet(Ticket(MIGRATING, "r1", Admission(grant=GRANT)), "")
    assert (sheet.lines, sheet.names) == ([("acme/dev/db", "end", "r1")], [MACHINE])
    assert (sheet.data["path"], sheet.data["workflow"]) == (MACHINE, MIGRATING)


class Link:
    def web_ui_url(self, path: str, run: str) -> str:
        return ""


@pytest.mark.parametrize(("grant", "before"), [(GRANT, False), (None, True)])
async def test_carried_out_before_is_said_only_if_it_was(
    capsys: pytest.CaptureFixture[str], grant: Grant | None, before: bool
) -> None:
    ticket = Ticket(MACHINE, "r1", Admission(grant=grant, outcome=ENDED))
    assert (
        await actions._follow_ticket(cast(ActionClient, Link()), KIND, ticket, actions.ActionOptions()) is ExitCode.DONE
    )
    assert ("carried out before" in capsys.readouterr().err) is before


@pytest.mark.parametrize("result", [ActionResult.SUCCEEDED, ActionResult.ALREADY])
def test_the_message_of_a_success_is_told_with_its_table(
    capsys: pytest.CaptureFixture[str], result: ActionResult
) -> None:
    assert outcomes.print_outcome(KIND, ENDED.model_copy(update={"result": result}), "table") is ExitCode.DONE
    assert "2 start again on enable" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("message", "told"), [("cancelled", "0 of 0 failed"), ("cancelled; 1 is left", "why: 1 is left"), ("by x", "by x")]
)
def test_that_it_was_cancelled_is_told_once(capsys: pytest.CaptureFixture[str], message: str, told: str) -> None:
    outcomes.print_outcome(
        KIND, ENDED.model_copy(update={"result": ActionResult.CANCELLED, "message": message}), "table"
    )
    err = capsys.readouterr().err
    assert told in err
    assert err.count("cancelled") == 1


def test_examples_in_help_are_the_family_s_own() -> None:
    for family, kinds in registry.FAMILIES.items():
        named = find_extension(family).examples
        shown = [word for kind in kinds if kind.requestable_actions and not kind.has_own_command for word in kind.scope]
        assert [word for word in shown if word not in named] == []
    assert find_extension("machines").example_path(registry.find_kind("machine")) == "acme/dev/db"
    assert find_extension("mci").example_path(registry.find_kind("vm")) == "default/web/front-1"


def test_help_shows_the_command_for_orphans_and_not_the_noun_that_it_works_through(
    capsys: pytest.CaptureFixture[str],
) -> None:
    build_cli_app()(["--help"], exit_on_error=False)
    shown = {line.split()[1] for line in capsys.readouterr().out.splitlines() if len(line.split()) > 2}
    assert "orphans" in shown
    assert "orphan" not in shown


async def test_a_cancel_without_a_worker_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def nobody(_path: str) -> str:
        raise NoWorker("actions")

    monkeypatch.setattr(reads, "locate_object", nobody)
    assert await run_command(["cancel", "default/web"]) == ExitCode.UNREACHABLE
    told = " ".join(capsys.readouterr().err.split())
    assert "no worker polls the queue 'actions'" in told
    assert "starter worker" in told
    assert "temporal workflow cancel --workflow-id PATH" in told


def test_the_help_lists_every_exit_code() -> None:
    codes = [f"{code.value} {code.name.lower().replace('_', ' ')}" for code in ExitCode]
    assert ", ".join(codes) == EXIT_CODES


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("mci suspend default/web --nope", "Unknown option: --nope."),
        ("mci suspend default/web --nope=3", "Unknown option: --nope."),
        ("list vm --no", "Unknown option: --no."),
        ("mci suspend default/web --tiemout=3", "Unknown option: --tiemout. Did you mean --timeout?"),
        ("machine stop acme/dev/db --dryrun", "Unknown option: --dryrun. Did you mean --dry-run?"),
        ("mci suspend default/web -x", "Unknown option: -x."),
    ],
)
async def test_only_an_option_with_a_similar_name_is_proposed(
    capsys: pytest.CaptureFixture[str], words: str, told: str
) -> None:
    """The dashes, which all options share, make none similar."""
    assert await run_command(words.split()) == ExitCode.USAGE
    assert capsys.readouterr().err.splitlines()[1] == f"  why: {told}"


@pytest.mark.parametrize("char", ["\x1b", "\x7f", "\x85", "\x9b", "\u202e", "\u2028", "\U000e0001"])
def test_control_characters_in_json_and_yaml_are_escaped(char: str) -> None:
    data = {"message": f"ünï{char}[31m", "more": ["a\nb"]}
    for text, read in ((format_json(data), json.loads), (format_yaml(data), yaml.safe_load)):
        assert text.replace("\n", "").isprintable(), ascii(text)
        assert read(text) == data
