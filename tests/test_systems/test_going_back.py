"""The definitions of every deploy are kept: compared, and deployed again. The last lines of services are shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.test_cli.shell import Cli
from tests.test_systems.kit import RUN, Shop, service, system

pytestmark = pytest.mark.stores("postgres")

ONE = {**RUN, "command": ["one"]}
TWO = {**RUN, "command": ["two"]}
# All lines at once: the logs may be read at any time, and it is started again and again.
BOOM = r'printf "first\npassword is %s\nno database here\n" "$DB_PASSWORD"; exit 1'


def written(folder: Path, definition: dict[str, object]) -> str:
    file = folder / "definition.yaml"
    file.write_text(json.dumps(definition))
    return str(file)


def name_of(shop: Shop) -> str:
    return shop.path.partition(":")[2]


async def test_a_rollback_deploys_what_the_last_deploy_replaced(cli: Cli, shop: Shop) -> None:
    await shop.deploy("/", system(service("web"), system({"name": "api", **ONE}, name="back")))
    await shop.deploy("/back/api", TWO)
    ran = await cli(f"system rollback {name_of(shop)}")
    assert ran.code == 0, ran.err
    assert (await shop.see("/back/api")).spec["command"] == ["one"]
    assert (await shop.records()) == {"d1": "succeeded", "d2": "succeeded", "d3": "succeeded"}
    record = await shop.service.inventory.read_object(f"{shop.at('/back/api')}::deploy:d3")
    assert record.spec["reason"] == "rollback of d2"


async def test_a_rollback_to_a_named_deploy_restores_its_whole_subtree(cli: Cli, shop: Shop) -> None:
    first = system(service("web"), {"name": "api", **ONE})
    await shop.deploy("/", first)
    before = await shop.states()
    await shop.deploy("/", system(service("other")))
    await shop.deploy("/other", TWO)
    ran = await cli(f"system rollback {name_of(shop)} d1")
    assert ran.code == 0, ran.err
    assert await shop.states() == before
    assert (await shop.see("/api")).spec["command"] == ["one"]


async def test_explain_of_a_system_or_part_suggests_to_go_back_after_a_failed_deploy(cli: Cli, shop: Shop) -> None:
    name = name_of(shop)
    await shop.deploy("/", system({"name": "api", **ONE}))
    assert f"such as: starter system deploy {name} /api -f FILE" in (await cli(f"explain {name}/api")).out
    assert f"such as: starter system deploy {name} / -f FILE" in (await cli(f"explain {name}")).out
    await shop.deploy("/api", {**TWO, "environment": {"SIMULATED": "unhealthy"}}, deadline=1)
    for path in (name, f"{name}/api"):
        assert f"such as: starter system rollback {name}" in (await cli(f"explain {path}")).out


async def test_explain_of_a_system_names_the_part_whose_deploy_failed(cli: Cli, shop: Shop) -> None:
    name = name_of(shop)
    await shop.deploy("/", system(service("web"), {"name": "api", **ONE}))
    await shop.deploy("/api", {**TWO, "environment": {"SIMULATED": "unhealthy"}}, deadline=1)
    told = (await cli(f"explain {name}")).out
    error = (await shop.see("/api")).error
    for about in ("because", "trouble"):
        assert f"{about:10} {name}/api is degraded: {error}" in told
    assert "before     deploy ended" in told


async def test_what_cannot_be_gone_back_to_is_refused(cli: Cli, shop: Shop) -> None:
    name = name_of(shop)
    none = await cli(f"system rollback {name}")
    assert (none.code, "nothing was deployed yet" in none.err) == (6, True)
    await shop.deploy("/", system(service("web")))
    first = await cli(f"system rollback {name}")
    assert (first.code, "there was nothing at / before d1" in first.err) == (3, True)
    unknown = await cli(f"system rollback {name} d7")
    assert (unknown.code, "there is no deploy d7" in unknown.err) == (6, True)
    assert await shop.records() == {"d1": "succeeded"}


async def test_definitions_are_compared(cli: Cli, shop: Shop, tmp_path: Path) -> None:
    name = name_of(shop)
    await shop.deploy("/", system({"name": "api", **ONE}))
    await shop.deploy("/", system({"name": "api", **TWO}))
    last = (await cli(f"system diff {name}")).out.splitlines()
    assert last[:2] == ["--- before d2", "+++ d2"]
    assert {"-  - one", "+  - two"} <= set(last)
    since = (await cli(f"system diff {name} d1")).out.splitlines()
    assert since[:2] == ["--- d1", "+++ now"]
    assert json.loads((await cli(f"system diff {name} d1 d2 -o json")).out)["diff"][2:] == since[2:]
    file = written(tmp_path, {**TWO, "instances": 2})
    planned = (await cli(f"system diff {name} --path /api -f", file)).out.splitlines()
    assert [line for line in planned if line.startswith("+")] == [f"+++ {file}", "+instances: 2"]
    assert "the same in both" in (await cli(f"system diff {name} d2")).err
    await shop.deploy("/api", ONE)
    other = await cli(f"system diff {name} d1 d3")
    assert (other.code, "d1 is a deploy of /, d3 of /api" in other.err) == (2, True)


async def test_a_comparison_has_the_parts_in_the_order_of_the_definition(cli: Cli, shop: Shop, tmp_path: Path) -> None:
    name, parts = name_of(shop), [{"name": "web", **ONE}, {"name": "api", **ONE}, {"name": "cache", **ONE}]
    await shop.deploy("/", system(*parts))
    assert "the same in both" in (await cli(f"system diff {name} d1")).err
    changed = [{**part, **TWO, "instances": 2} for part in parts]
    lines = (await cli(f"system diff {name} -f", written(tmp_path, {"parts": changed}))).out.splitlines()
    named = [line.strip().removeprefix("name: ") for line in lines if line.strip().startswith("name: ")]
    assert named == ["web", "api", "cache"]
    assert not [line for line in lines if line[1:].strip().startswith("name:") and line[0] in "+-"]
    odd = await cli(f"system diff {name} -f", written(tmp_path, {"parts": {"web": 1}}))
    assert odd.code == 0, odd.err


async def test_deploys_of_a_deleted_system_are_not_those_of_its_successor(cli: Cli, shop: Shop) -> None:
    await shop.deploy("/", system({"name": "api", **ONE}))
    await shop.do("/", "delete")
    await shop.create()
    assert "nothing was deployed yet" in (await cli(f"system diff {name_of(shop)}")).err


async def test_a_failed_deploy_shows_the_last_lines_of_its_service_and_no_secret(cli: Cli, real: Shop) -> None:
    broken = {
        "name": "api",
        "command": ["sh", "-c", BOOM],
        "health": {"command": ["false"]},
        "environment": {"DB_PASSWORD": "hunter2hunter2"},
    }
    outcome = await real.deploy("/", system(broken), deadline=60)
    assert outcome.result == "failed"
    assert "it wrote: first / password is *** / no database here" in outcome.message
    assert "hunter2" not in outcome.model_dump_json()
    shown = await cli(f"system logs {name_of(real)} /api -n 2")
    assert shown.code == 0, shown.err
    assert shown.out.splitlines() == ["== /api 1", "password is ***", "no database here"]
    data = json.loads((await cli(f"system logs {name_of(real)} -o json")).out)
    assert (data[0]["service"], data[0]["instance"]) == ("/api", 1)
    assert (await cli(f"system logs {name_of(real)} /no")).code == 6
    assert (await cli(f"system logs {name_of(real)} -n 0")).code == 2


async def test_error_and_status_agree_after_a_failed_update(cli: Cli, shop: Shop) -> None:
    """The former instances still serve: neither of the two says only half of it."""
    await shop.deploy("/", system({"name": "api", **ONE, "instances": 2}))
    crash = {**TWO, "instances": 2, "environment": {"SIMULATED": "crash"}}
    outcome = await shop.deploy("/api", crash, deadline=60)
    assert "0 of 2 healthy, 2 of the former definition" in outcome.message
    line = next(line for line in (await cli(f"system status {name_of(shop)}")).out.splitlines() if "/api" in line)
    assert line.split()[:5] == ["/api", "degraded", "0/2", "+2", "former"]
    assert "2 of the former definition" in (await shop.see("/api")).error


async def test_the_simulated_backend_has_no_logs_and_says_so(cli: Cli, shop: Shop) -> None:
    await shop.deploy("/", system(service("web")))
    shown = await cli(f"system logs {name_of(shop)}")
    assert (shown.code, "the simulated backend writes none" in shown.err) == (0, True)
