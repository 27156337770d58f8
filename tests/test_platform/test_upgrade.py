"""A new build while actions are in flight: each ends on its own build, new ones begin on the new build."""

from __future__ import annotations

import asyncio
import inspect
import json
import shutil
import signal
from pathlib import Path

import pytest
from temporalio import workflow
from temporalio.api.enums.v1 import EventType

from domain.model import ActionResult, Request
from starter.command import run_command
from tests.cases import every_case
from tests.patience import PATIENCE
from tests.test_platform.site import ROOT, Site
from tests.user import spec
from workers.families import FAMILIES, WORKFLOWS
from workflows.action import ActionWorkflow

LAYERS = (
    "domain",
    "store",
    "providers",
    "activities",
    "workflows",
    "client",
    "workers",
    "gateway",
    "starter",
    "examples",
)
NEW_STEP = "        await workflow.sleep(0.01, summary='a step that the old code does not know')\n"


@pytest.fixture
def new_code(tmp_path: Path) -> Path:
    """This program with one more step in its actions: a history of the old code cannot be replayed on it."""
    copy = tmp_path / "new"
    for layer in LAYERS:
        shutil.copytree(ROOT / layer, copy / layer, ignore=shutil.ignore_patterns("__pycache__"))
    file = copy / "workflows" / "action.py"
    before = "        result, done = await self._run_work(request, grant)\n"
    assert before in file.read_text()
    file.write_text(file.read_text().replace(before, NEW_STEP + before))
    return copy


async def steps(site: Site, path: str, run_id: str) -> tuple[str, bool]:
    """The build that an action ended on, and whether it took the new step."""
    handle = site.client.get_workflow_handle(path, run_id=run_id)
    build = (await handle.describe()).raw_description.workflow_execution_info.versioning_info
    events = (await handle.fetch_history()).events
    timers = [event for event in events if event.event_type == EventType.EVENT_TYPE_TIMER_STARTED]
    return build.deployment_version.build_id, bool(timers)


async def test_actions_in_flight_end_on_the_old_build_and_new_ones_begin_on_the_new(
    site: Site, new_code: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site.environment["RATCHET_DEPLOYMENT"] = "ratchet"
    for name, value in site.environment.items():
        monkeypatch.setenv(name, value)
    async with site.worker(RATCHET_BUILD="v1") as old:
        assert await promoted("v1")
        await site.do("ns:default:mci:old", "create", 1)
        await site.hang("suspend", 600)
        in_flight = await site.ask("ns:default:mci:old", "suspend")
        await site.until_hanging()
        async with site.worker(RATCHET_BUILD="v2", cwd=new_code):
            assert await promoted("v2")
            fresh = await site.ask("ns:default:mci:new", "create", 1)
            assert (await site.asking.wait_for_outcome(fresh.path, fresh.run)).result is ActionResult.SUCCEEDED
            assert await steps(site, fresh.path, fresh.run) == ("v2", True)
            # The old worker is replaced in the middle of the action: by the same build, on which it goes on.
            async with site.worker(RATCHET_BUILD="v1"):
                old.process.send_signal(signal.SIGTERM)
                await old.process.wait()
                outcome = await asyncio.wait_for(site.asking.wait_for_outcome(in_flight.path, in_flight.run), PATIENCE)
            assert outcome.result is ActionResult.SUCCEEDED
            assert await steps(site, in_flight.path, in_flight.run) == ("v1", False)
            assert (await site.do("ns:default:mci:old", "resume")).result is ActionResult.SUCCEEDED
            capsys.readouterr()
            assert await run_command(["build", "list"]) == 0
            shown = {line.split()[0]: line.split()[1] for line in capsys.readouterr().out.splitlines()}
            assert (shown["v2"], shown["v1"] in ("draining", "drained")) == ("current", True), shown
            assert await run_command(["build", "promote", "v3"]) == 6
            assert "builds are: " in capsys.readouterr().err


async def promoted(build: str) -> bool:
    """As a pipeline does it: until Temporal has seen the workers of the build on every queue."""
    async with asyncio.timeout(PATIENCE):
        while code := await run_command(["build", "promote", build]):
            assert code in (3, 5, 6)  # 3: not on every queue yet
            await asyncio.sleep(0.2)
    return True


async def test_workers_of_which_no_build_is_promoted_are_named_with_the_command_that_helps(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site.environment["RATCHET_DEPLOYMENT"] = "ratchet"
    for name, value in site.environment.items():
        monkeypatch.setenv(name, value)
    async with site.worker(RATCHET_BUILD="v1"):
        monkeypatch.setattr("client.queries.POLLERS_SECONDS", 0.3)  # it is there, and not promoted meanwhile
        for words in ("list mci", "explain default/web", "mci suspend default/web"):
            assert await run_command(words.split()) == 5
            told = capsys.readouterr().err
            assert "the workers of the deployment 'ratchet' are there, but none of its builds was promoted" in told
            assert "hint: RATCHET_DEPLOYMENT=ratchet starter build promote v1" in told
        assert await promoted("v1")
        assert await run_command(["list", "mci"]) == 0


LASTING = [each for family in FAMILIES for each in family.companion_workflows]


@every_case("kind", WORKFLOWS, ids=lambda each: each.__name__)
def test_actions_stay_on_their_build_and_what_lives_beside_an_object_moves_on(kind: type) -> None:
    """An action has the workers' default, which is pinned. What begins anew to live on outlives any build."""
    outlives = not issubclass(kind, ActionWorkflow) and "continue_as_new(" in inspect.getsource(kind)
    assert (kind in LASTING) is outlives, f"{kind.__name__} belongs to `lasting` of its family"
    said = workflow._Definition.must_from_class(kind).versioning_behavior
    assert not said, "said in the workflow itself, a server without versions refuses it"


async def test_an_action_that_is_pinned_to_a_build_without_workers_is_seen_and_nothing_hangs(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site.environment["RATCHET_DEPLOYMENT"] = "ratchet"
    for name, value in site.environment.items():
        monkeypatch.setenv(name, value)
    async with site.worker(RATCHET_BUILD="v1"):
        assert await promoted("v1")
        held = Request(
            path="ns:default:mci:held",
            action="create",
            spec={**spec(1, ["aws"]), "option": "hold"},
            requested_by="tester",
        )
        ticket = await site.asking.request_action(held)
        await until_held(site, ticket.path, ticket.run)
        alone: dict[str, object] = {"pinned": 0}
        async with asyncio.timeout(PATIENCE):
            while not alone["pinned"]:  # Temporal counts what began a moment ago only after a while
                capsys.readouterr()
                assert await run_command(["build", "list", "-o", "json"]) == 0
                (alone,) = json.loads(capsys.readouterr().out)
        assert (alone["build"], alone["workers"], alone["pinned"]) == ("v1", 1, 1)
    async with site.worker(RATCHET_BUILD="v2"):
        assert await promoted("v2")
        monkeypatch.setattr("client.builds.POLL_SECONDS", 1.0)  # v1's worker has just stopped
        await asyncio.sleep(2)
        capsys.readouterr()
        async with asyncio.timeout(PATIENCE):
            assert await run_command(["mci", "continue", "default/held", "--timeout", "10"]) == 5
        assert "did not answer within 10 s" in capsys.readouterr().err
        assert await run_command(["doctor"]) == 5
        told = capsys.readouterr()
        assert "build v1 has no worker, but 1 open action pinned" in told.out
        assert "RATCHET_BUILD=v1" in told.err
    async with site.worker(RATCHET_BUILD="v1"):
        # The decision that got no answer in time was kept by Temporal, and arrives now.
        async with asyncio.timeout(3 * PATIENCE):
            outcome = await site.asking.wait_for_outcome(ticket.path, ticket.run)
        assert outcome.result is ActionResult.SUCCEEDED


async def until_held(site: Site, path: str, run: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while not (seen := await site.asking.try_read_progress(path, run)) or not seen.step.startswith("holding"):
            await asyncio.sleep(0.05)
