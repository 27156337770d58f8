"""The contract of a backend: the same deploys on the simulated one, on processes and in containers."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from client.actions import ActionClient
from domain.model import ActionResult
from domain.services.definition import Node
from domain.services.ports import ServiceOrder
from domain.systems.rules import check_backend
from providers.services.supervisor import Supervisor
from tests.orphans import found_and_removed
from tests.test_systems.containers import ROOT, image, needs_containers
from tests.test_systems.images import sleeper
from tests.test_systems.kit import RUN, Shop, system
from workers.service import WorkerService

__all__ = ["image"]  # a fixture

PROCESS = {"command": ["sleep", "1000"], "stopSeconds": 1}
BACKENDS = ["simulated", "process", pytest.param("container", marks=needs_containers)]


@dataclass(frozen=True)
class Subject:
    """A backend under the contract: a system on it, and a service that it can run."""

    shop: Shop
    service: dict[str, Any]

    def version(self, number: str, **more: Any) -> dict[str, Any]:
        return {**self.service, "environment": {"VERSION": number}, **more}

    def failing(self) -> dict[str, Any]:
        """The same, and it ends as soon as it is up; never is it healthy before, however long that takes."""
        if self.shop.backend == "simulated":
            return {**self.service, "environment": {"SIMULATED": "crash"}}
        return {**self.service, "command": ["sh", "-c", "exit 3"], "health": {"command": ["false"]}}

    async def crash_instance(self) -> None:
        unit = (await self.shop.units("/job"))[0]
        if self.shop.backend == "simulated":
            self.shop.runner.crash_instance(unit.token)
        else:
            os.kill(unit.pid, signal.SIGKILL)


@pytest.fixture(params=BACKENDS)
async def subject(
    request: pytest.FixtureRequest, asking: ActionClient, stack: WorkerService, ns: str, image: Path
) -> AsyncIterator[Subject]:
    shop = await Shop(asking, stack, f"system:{ns}", request.param).create()
    definitions = {"simulated": RUN, "process": PROCESS, "container": sleeper(image)}
    yield Subject(shop, definitions[request.param])
    await shop.all_promises_are_kept()
    if await shop.states():
        assert (await shop.do("/", "delete")).status == "None"
    assert [unit for unit in await shop.supervisor.ledger.list_instances() if unit.path.startswith(shop.path)] == []


async def test_deploy_update_scale_and_teardown(subject: Subject) -> None:
    shop = subject.shop
    assert (await shop.deploy("/", system({"name": "job", **subject.version("1")}))).status == "stable"
    (first,) = await shop.units("/job")
    assert (await shop.deploy("/job", subject.version("2", instances=2))).result is ActionResult.SUCCEEDED
    units = await shop.units("/job")
    assert len(units) == 2
    assert first.token not in {unit.token for unit in units}
    assert (await shop.deploy("/job", subject.version("2", instances=1))).result is ActionResult.SUCCEEDED
    (kept,) = await shop.units("/job")
    assert kept.token in {unit.token for unit in units}  # fewer of the same: nothing restarts
    await shop.do("/", "teardown")
    assert await shop.units("/job") == []


async def test_an_instance_that_ends_by_itself_is_told_and_comes_back(subject: Subject) -> None:
    await subject.shop.deploy("/", system({"name": "job", **subject.version("1")}))
    with subject.shop.holding_starts():
        await subject.crash_instance()
        await subject.shop.until_state("/", "degraded")
    await subject.shop.until_state("/", "stable")
    assert len(await subject.shop.units("/job")) == 1


async def test_a_definition_that_fails_is_rolled_back_and_the_former_instance_stays(subject: Subject) -> None:
    shop = subject.shop
    await shop.deploy("/", system({"name": "job", **subject.version("1")}))
    former = {unit.token for unit in await shop.units("/job")}
    outcome = await shop.deploy("/job", subject.failing(), rollback=True)
    assert outcome.result is ActionResult.FAILED
    assert "rolled back to the former definition" in outcome.message
    assert {unit.token for unit in await shop.units("/job")} == former
    assert await shop.states() == {"/": "stable", "/job": "stable"}


async def test_a_service_without_a_record_is_listed_as_an_orphan_and_removed(subject: Subject) -> None:
    shop, supervisor = subject.shop, subject.shop.supervisor
    assert isinstance(supervisor, Supervisor)
    over = 2 * (await shop.service.inventory.read_last_epoch())
    await supervisor.apply_orders([ServiceOrder(shop.at("/stray"), over, {"instances": 1, **subject.service})])

    async def is_up() -> bool:
        return any(fact.is_rolled_out() for fact in await supervisor.describe_services(shop.at("/stray")))

    await shop.until(is_up)
    await found_and_removed(shop.asking, shop.at("/stray"), shop.backend, "1 of 1 up")
    assert await shop.units("/stray") == []


def test_the_example_fits_the_container_backend() -> None:
    definition = yaml.safe_load((ROOT / "examples" / "system-containers.yaml").read_text())
    check_backend("system:site", Node.model_validate(definition), "container")


@needs_containers
async def test_the_example_of_the_docs_runs(asking: ActionClient, stack: WorkerService, ns: str, image: Path) -> None:
    definition = yaml.safe_load((ROOT / "examples" / "system-containers.yaml").read_text())
    definition["parts"][0]["image"] = str(image)  # it is elsewhere in tests
    del definition["parts"][0]["port"], definition["parts"][0]["health"]  # of other tests, maybe
    definition["parts"][0]["command"] = [word.replace("{port}", "8080") for word in definition["parts"][0]["command"]]
    shop = await Shop(asking, stack, f"system:{ns}", "container").create()
    assert (await shop.deploy("/", definition)).status == "stable"
    assert len(await shop.units("/web")) == 2
    assert (await shop.do("/", "delete")).status == "None"
