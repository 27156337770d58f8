"""`starter system …` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.patience import PATIENCE
from tests.test_cli.shell import Cli
from tests.test_systems.kit import RUN, Shop, service, system

TREE = system(service("web", instances=2), system(service("b"), service("c", after=["b"]), name="a"))


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "shop.yaml"
    path.write_text(json.dumps(TREE))
    return str(path)


async def test_a_tree_is_deployed_looked_at_and_torn_down(cli: Cli, shop: Shop, file: str) -> None:
    name = shop.path.partition(":")[2]
    deployed = await cli(f"system deploy {name} -f", file)
    assert deployed.code == 0, deployed.err
    assert deployed.out.splitlines()[1].split()[:4] == [name, "deploy", "succeeded", "stable"]
    seen = await cli(f"system status {name}")
    assert [line.split()[:3] for line in seen.out.splitlines() if line.startswith("/")] == [
        ["/a/b", "stable", "1/1"],
        ["/a/c", "stable", "1/1"],
        ["/web", "stable", "2/2"],
    ]
    told = json.loads((await cli(f"system status {name} -o json")).out)
    assert (told["status"], told["services"][2]["healthy"]) == ("stable", 2)
    assert json.loads((await cli(f"get {shop.path}:a:b -o json")).out)["simulated"]
    assert (await cli(f"system deploys {name} -o json")).out.count('"succeeded"') == 1
    assert (await cli("system list -o name")).out.count(f"{shop.path}\n") == 1
    torn = await cli(f"system teardown {name} --yes")
    assert torn.code == 0, torn.err
    assert [line.split()[0] for line in (await cli(f"system deploys {name}")).out.splitlines()] == ["NAME", "d1", "t1"]


async def test_what_is_shown_can_be_deployed_again(cli: Cli, shop: Shop, file: str, tmp_path: Path) -> None:
    name = shop.path.partition(":")[2]
    assert (await cli(f"system show {name}")).code == 6  # nothing is deployed yet
    await cli(f"system deploy {name} / -f", file)
    shown = (await cli(f"system show {name}")).out
    before = await shop.see("/a/c")
    (tmp_path / "again.yaml").write_text(shown)
    assert (await cli(f"system deploy {name} -f", str(tmp_path / "again.yaml"))).code == 0
    assert await shop.see("/a/c") == before
    part = yaml.safe_load((await cli(f"system show {name} /a")).out)
    assert [each["name"] for each in part["parts"]] == ["b", "c"]
    assert yaml.safe_load((await cli(f"system show {name} /web")).out) == {**RUN, "instances": 2}


async def test_the_graph_shows_states_and_who_holds_what(cli: Cli, shop: Shop, file: str) -> None:
    name = shop.path.partition(":")[2]
    await cli(f"system deploy {name} -f", file)
    shop.hold("/a/b")
    running = await shop.begin("/a/b", {**RUN, "command": ["two"]})
    await shop.until_record("d2", "in progress")

    async def nobody_is_well() -> bool:
        return (await shop.supervisor.describe_services(shop.at("/a/b")))[0].healthy == 0

    await shop.until(nobody_is_well)  # what is held is not well either
    graph = (await cli(f"system graph {name}")).out.splitlines()
    assert graph == [
        f"{name}  updating  [IX for 1 below]",
        "├── a  updating  [IX for 1 below]",
        "│   ├── b  updating  0/1  [X deploy d2]",
        "│   └── c  stable  1/1",
        "└── web  stable  2/2",
    ]
    refused = await cli(f"system teardown {name} --yes")
    assert refused.code == 8
    assert "locked by deploy d2" in refused.err
    shop.let_go()
    await running


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        ("system deploy {name} a/b -f {file}", 2, "it begins with a slash"),
        ("system deploy {name} /a/ -f {file}", 2, "it does not end with a slash"),
        ("system deploy {name} /no/where -f {file}", 6, "there is no system:{name}:no"),
        ("system deploy {name} / -f {file} --deadline soon", 2, "--deadline 'soon'"),
        ("system deploy no-such-system / -f {file}", 6, "there is no such System"),
        ("system deploy {name} / -f /no/such/file", 2, "No such file"),
        ("system deploy a:b / -f {file}", 2, "does not name an object of kind system"),
        ("system create {name}", 3, "exists already"),
        ("system create other --backend cloud", 2, "cloud"),
        ("system status no-such-system", 6, "there is no such System"),
        ("system deploys no-such-system", 6, "there is no such System"),
        ("system graph no-such-system", 6, "there is no such System"),
        ("system show {name} /no", 6, "there is no such Part"),
    ],
)
async def test_bad_words_are_refused_with_a_reason(
    cli: Cli,
    shop: Shop,
    file: str,
    words: str,
    code: int,
    why: str,
) -> None:
    name = shop.path.partition(":")[2]
    ran = await cli(words.format(name=name, file=file))
    assert ran.code == code, ran.err
    assert why.format(name=name) in ran.err
    assert "hint:" in ran.err


async def test_a_failed_deploy_says_which_service_and_why(cli: Cli, shop: Shop, tmp_path: Path) -> None:
    name = shop.path.partition(":")[2]
    bad = tmp_path / "bad.yaml"
    bad.write_text(json.dumps(service("x", environment={"SIMULATED": "crash"})))
    ran = await cli(f"system deploy {name} /x --rollback-on-failure --deadline {PATIENCE}s -f", str(bad))
    assert ran.code == 1
    assert f"{name}/x has 0 of 1 healthy: ended by itself, as simulated; rolled back" in ran.err
    assert await shop.states() == {"/": "stable"}


async def test_every_command_has_help_with_an_example(cli: Cli) -> None:
    for verb in (
        "create",
        "deploy",
        "teardown",
        "delete",
        "status",
        "list",
        "deploys",
        "show",
        "graph",
        "rollback",
        "diff",
        "logs",
    ):
        told = await cli(f"system {verb} --help")
        assert told.code == 0
        assert "Example: starter system" in told.out, verb
