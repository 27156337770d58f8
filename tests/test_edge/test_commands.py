"""The commands of the edge as a user types them, the examples, and the demo."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from domain.edge.faults import CrmFaults
from domain.edge.specs import AppSpec, CloudletSpec, CrmPatience, PolicySpec
from starter.command import run_command
from starter.edge import demo
from tests.patience import PATIENCE
from tests.test_edge.kit import Edge, fault

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def _commands_find_the_server(monkeypatch: pytest.MonkeyPatch, temporal_address: str, home: Path) -> None:
    for name in [name for name in os.environ if name.startswith(("TEMPORAL_", "RATCHET_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TEMPORAL_ADDRESS", temporal_address)
    monkeypatch.setenv("RATCHET_HOME", str(home))
    monkeypatch.setenv("RATCHET_LOG_LEVEL", "error")


async def test_a_cloudlet_is_shown_as_a_tree(edge: Edge, capsys: pytest.CaptureFixture[str]) -> None:
    await edge.up()
    org = edge.user.ns
    for words in (
        ["cluster", "create", f"{org}/berlin/c1", "--nodes", "2"],
        ["cluster", "create", f"{org}/berlin/c2", "--flavor", "large"],
        ["app", "create", f"{org}/berlin/c1/shop", "--replicas", "3"],
        ["app", "create", f"{org}/berlin/c1/blog"],
    ):
        assert await run_command(words) == 0
    capsys.readouterr()
    assert await run_command(["cloudlet", "status", f"{org}/berlin"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{org}/berlin  Ready  (CRM v1, notify-id {await edge.notify_id()})",
        "├─ c1  Ready  nodes 2, flavor small",
        "│  ├─ blog  Ready  image nginx:stable, replicas 1",
        "│  └─ shop  Ready  image nginx:stable, replicas 3",
        "└─ c2  Ready  nodes 1, flavor large",
    ]
    assert await run_command(["cloudlet", "status", f"{org}/berlin", "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["crm"]["version"] == "v1"
    assert [(each["name"], [app["name"] for app in each["apps"]]) for each in told["clusters"]] == [
        ("c1", ["blog", "shop"]),
        ("c2", []),
    ]
    assert await run_command(["explain", f"{org}/berlin"]) == 0
    assert f"on site    CRM v1, notify-id {await edge.notify_id()}\n" in capsys.readouterr().out
    assert await run_command(["explain", f"{org}/berlin/c1"]) == 0
    assert "you can    update; such as: starter cluster update " in capsys.readouterr().out  # no delete: it has apps
    assert await run_command(["cluster", "delete", f"{org}/berlin/c1"]) == 3
    assert "add --cascade" in capsys.readouterr().err
    assert await run_command(["cluster", "delete", f"{org}/berlin/c1", "--cascade", "-y"]) == 0
    assert await run_command(["cluster", "update", f"{org}/berlin/c2", "--nodes", "11"]) == 2
    assert await run_command(["cloudlet", "status", f"{org}/nowhere"]) == 6


async def test_bad_words_are_refused_before_anything_happens(capsys: pytest.CaptureFixture[str]) -> None:
    assert await run_command(["crm", "run", "--cloudlet", "one"]) == 2
    assert await run_command(["crm", "run", "--cloudlet", "a/b", "--faults", str(EXAMPLES / "mci-demo.yaml")]) == 2
    assert "examples/crm-faults.yaml" in capsys.readouterr().err
    assert await run_command(["crm", "stop", "--cloudlet", "nobody/nowhere"]) == 0
    assert "no CRM of this cloudlet runs on this machine" in capsys.readouterr().err
    assert await run_command(["cloudlet", "create", "a/b", "--transport", "webhook"]) == 2
    assert "needs a url" in capsys.readouterr().err
    assert await run_command(["policy", "create", "a/b"]) == 2
    assert "write either auto_provision or auto_scale" in capsys.readouterr().err


def test_the_examples_are_what_they_say() -> None:
    def read(name: str) -> object:
        return yaml.safe_load((EXAMPLES / name).read_text())

    assert CloudletSpec.model_validate(read("cloudlet-demo.yaml")).patience.create == 1_800
    assert PolicySpec.model_validate(read("policy-demo.yaml")).auto_provision
    assert PolicySpec.model_validate(read("policy-scale.yaml")).auto_scale
    assert len(CrmFaults.model_validate(read("crm-faults.yaml")).faults) == 4


def test_patience_is_what_the_rules_say_if_nobody_says_otherwise() -> None:
    usual = CrmPatience()
    assert (usual.create, usual.update, usual.delete) == (30 * 60, 20 * 60, 20 * 60)
    assert usual.cap > usual.create


async def test_the_demo_plays_to_its_end(
    edge: Edge, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "STATUS_SECONDS", PATIENCE)
    for latency in (0.3, 3, 15):  # on a busy machine the cluster may be done before the app is refused
        monkeypatch.setattr(demo, "DEMO_LATENCY", latency)
        code, told = await run_command(["demo", "edge"]), capsys.readouterr()
        if code == 0:
            break
    assert code == 0, told.err
    for words in ("409 Conflict", "kill -9", "(CRMv2)", "UpdateError", "no capacity for nine nodes", "Done."):
        assert words in told.out + told.err, words
    assert edge.crms == {}


async def test_no_json_of_an_instance_says_none_for_what_is_not_present(
    edge: Edge, capsys: pytest.CaptureFixture[str]
) -> None:
    await edge.up()
    org, cluster = edge.user.ns, edge.at("berlin", "c1")

    async def told(*words: str) -> Any:
        capsys.readouterr()
        assert await run_command([*words, "-o", "json"]) == 0
        return json.loads(capsys.readouterr().out)

    would = await told("check", cluster, "create")
    assert (would["came_from"], would["then"]) == ("NotPresent", "Ready")
    edge.set_faults(fault("silent", "create"))
    ticket = await edge.begun(cluster, "create", spec={})
    (view,) = await told("cluster", "list", "--prefix", org)
    assert (view["previous_status"], view["target_status"]) == ("NotPresent", "Ready")
    await edge.say(cluster, "Ready")
    await edge.end(ticket)
    assert (await told("get", cluster))["target_status"] is None  # nothing is wanted of it
    edge.set_faults(fault("silent", "delete"))
    ticket = await edge.begun(cluster, "delete")
    assert (await told("get", cluster))["target_status"] == "NotPresent"
    await edge.say(cluster, "NotPresent")
    await edge.end(ticket)
    lines = await told("history", cluster)
    assert (lines[0]["source"], lines[-1]["to"]) == ("NotPresent", "NotPresent")
    assert "None" not in {line[word] for line in lines for word in ("source", "to")}


def test_the_app_on_the_page_about_crms_is_that_of_the_example_and_valid() -> None:
    page = EXAMPLES.parent / "docs" / "crm.md"
    (block,) = re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)
    app = yaml.safe_load((EXAMPLES / "app-web.yaml").read_text())
    assert yaml.safe_load(block) == app
    assert not AppSpec.model_validate(app).find_contradiction()
