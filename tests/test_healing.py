"""Self-healing in every family: objects of dead actions are restored and reported, living actions are left alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from temporalio.client import Client
from temporalio.testing import ActivityEnvironment

from activities.companions import CompanionReconciler
from activities.healing import HealingActivities
from activities.retention import RetentionArchive, RetentionSweep
from client.actions import ActionClient
from client.explaining import explain_object
from domain import wire
from domain.healing import (
    ANY_ACTION,
    DEFAULT_LIMIT_SECONDS,
    HealEntry,
    HealFinding,
    HealReport,
    PruneResult,
    StuckItem,
    SweepOptions,
    action_limit_seconds,
)
from domain.model import ActionResult, Request
from domain.ports import Inventory
from store.schema import actions, locks, objects
from tests.patience import PATIENCE
from tests.stack import opened
from tests.test_cli.conftest import cli as cli
from tests.test_cli.shell import Cli
from tests.user import User, spec
from workers.schedule import ensure_heal_schedule

pytestmark = pytest.mark.stores("sqlite", "postgres")

NOW = SweepOptions(limits={ANY_ACTION: 0})
LOOK = SweepOptions(limits={ANY_ACTION: 0}, dry_run=True)


async def sweep(user: User, order: SweepOptions = NOW) -> tuple[HealReport, list[HealEntry]]:
    """A sweep, and what it found of this test's own objects."""
    report = await user.asking.run_sweep(order)
    return report, [found for found in report.found if found.path.startswith(f"ns:{user.ns}:")]


@pytest.fixture
async def hung(user: User) -> AsyncIterator[str]:
    """A VM whose reboot takes its time."""
    await user.do(user.mci(), "create", spec=spec(2, ["aws"]))
    await user.fault("hang", vm="aws0-1", verb="reboot", seconds=60)
    await user.admitted(user.vm("aws0-1"), "reboot")
    await user.until_delayed(user.vm("aws0-1"))
    yield user.vm("aws0-1")
    await user.heal_faults()


async def terminate(user: User, workflow: str) -> None:
    await user.asking.client.get_workflow_handle(workflow).terminate("an operator, in the Web UI")


def test_limits_are_looked_up_from_the_narrow_to_the_wide() -> None:
    limits = {"vm.reboot": 1.0, "vm": 2.0, ANY_ACTION: 3.0}
    assert [action_limit_seconds(limits, path, "reboot") for path in ("ns:a:mci:b:vm:c", "ns:a:mci:b")] == [1.0, 3.0]
    assert action_limit_seconds(limits, "ns:a:mci:b:vm:c", "resume") == 2.0
    assert action_limit_seconds({}, "ns:a:mci:b", "create") == DEFAULT_LIMIT_SECONDS


async def test_an_object_whose_workflow_was_terminated_goes_back_and_is_reported(user: User, hung: str) -> None:
    await terminate(user, hung)
    _, [found] = await sweep(user)
    assert (found.path, found.action, found.status, found.finding) == (hung, "reboot", "Rebooting", HealFinding.HEALED)
    assert (found.to, (await user.see(hung)).status) == ("Running", "Running")
    assert await user.service.inventory.list_locks(user.mci()) == []
    last = (await user.history(hung))[-1]
    assert (last.actor, last.action, last.source, last.to) == ("Controller", "heal", "Rebooting", "Running")
    assert (await user.do(hung, "suspend")).result is ActionResult.SUCCEEDED


async def test_a_group_goes_back_with_all_its_members(user: User) -> None:
    await user.do(user.mci(), "create", spec=spec(3, ["aws"]))
    await user.fault("hang", verb="suspend", seconds=60)
    await user.admitted(user.mci(), "suspend")
    await user.until_delayed(user.vm("aws0-1"))
    await terminate(user, user.mci())
    _, [found] = await sweep(user)
    assert (found.path, found.finding) == (user.mci(), HealFinding.HEALED)
    assert {vm.status for vm in (await user.see(user.mci())).members} == {"Running"}


async def test_explain_names_the_status_from_which_a_group_was_taken(user: User) -> None:
    await user.do(user.mci(), "create", spec=spec(3, ["aws"]))
    await user.do(user.mci(), "suspend")
    await user.fault("hang", verb="resume", seconds=60)
    await user.admitted(user.mci(), "resume")
    await user.until_delayed(user.vm("aws0-1"))
    await terminate(user, user.mci())
    because = next(remark for remark in (await explain_object(user.asking, user.mci())).remarks)
    assert because.text.startswith("resume took it from Suspended:3 (R:0/3) to Resuming, asked for by")


async def test_a_slow_action_that_lives_is_reported_and_left_alone(user: User, hung: str) -> None:
    _, [found] = await sweep(user)
    assert (found.finding, found.status) == (HealFinding.SLOW, "Rebooting")
    assert (await user.see(hung)).status == "Rebooting"
    await user.heal_faults()
    assert await user.service.inventory.list_locks(hung) != []
    await user.asking.cancel_action(hung)


async def test_a_terminated_action_is_healed_at_once_however_young_it_is(user: User, hung: str) -> None:
    await terminate(user, hung)
    _, [found] = await sweep(user, SweepOptions())
    assert (found.path, found.finding, found.to) == (hung, HealFinding.HEALED, "Running")


async def test_a_dry_run_beside_a_dead_action_judges_as_the_next_action_does(user: User, hung: str) -> None:
    its_own, of_its_group = (Request(path=path, action="suspend") for path in (hung, user.mci()))
    for asked in (its_own, of_its_group):
        refusal = (await user.asking.check_request(asked)).refusal
        assert refusal
        assert "409 Conflict" in refusal.message
    await terminate(user, hung)
    dry = await user.asking.check_request(its_own)
    assert (dry.refusal, dry.grant and dry.grant.came_from) == (None, "Running")
    dry = await user.asking.check_request(of_its_group)
    assert dry.preview
    assert {change.came_from for change in dry.preview.changes} == {"Running"}
    assert (await user.see(hung)).status == "Rebooting"  # it changed nothing
    assert (await user.do(user.mci(), "suspend")).result is ActionResult.SUCCEEDED


async def test_a_run_that_temporal_does_not_know_is_left_alone_until_its_limit(user: User, hung: str) -> None:
    await terminate(user, hung)
    forgotten = f"5b1b5c1e-0000-4000-8000-{int(user.ns.removeprefix('t')):012}"

    def forget(connection: sa.Connection) -> None:
        mine = (actions.c.path == hung) & actions.c.ended_at.is_(None)
        connection.execute(sa.update(actions).where(mine).values(run=forgotten))
        connection.execute(sa.update(locks).where(locks.c.owner == hung).values(run=forgotten))

    await user.service.database.run_transaction(forget)
    assert (await sweep(user, SweepOptions(limits={"vm.reboot": 3600.0})))[1] == []
    assert (await user.see(hung)).status == "Rebooting"
    assert [found.finding for found in (await sweep(user, SweepOptions(limits={"vm.reboot": 0.0})))[1]] == [
        HealFinding.HEALED
    ]


class Outdated:
    """The inventory, which a sweep has asked for suspects some time ago."""

    def __init__(self, inventory: Inventory, suspects: list[StuckItem]) -> None:
        self._inventory, self._suspects = inventory, suspects

    async def list_stuck_items(self, before: datetime) -> list[StuckItem]:
        return self._suspects

    def __getattr__(self, name: str) -> object:
        return getattr(self._inventory, name)


async def test_an_action_that_ends_while_a_sweep_looks_is_not_called_healed(user: User, patient: None) -> None:
    await user.do(user.mci(), "create", spec=spec(1, ["aws"]))
    await user.fault("hang", verb="reboot", seconds=60)
    ticket = await user.admitted(user.mci(), "reboot")
    inventory = user.service.inventory
    seen = [suspect for suspect in await inventory.list_stuck_items(datetime.now(UTC)) if suspect.path == user.mci()]
    await user.heal_faults()
    assert (await user.asking.wait_for_outcome(user.mci(), ticket.run)).result is ActionResult.SUCCEEDED
    client = user.asking.client
    healing = HealingActivities(client, Outdated(inventory, seen), CompanionReconciler(client))  # type: ignore[arg-type]
    report = await ActivityEnvironment().run(healing.sweep, SweepOptions(limits={ANY_ACTION: 0}, grace=10**6))
    assert [(found.path, found.finding) for found in report.found] == [(user.mci(), HealFinding.ENDED)]


async def test_a_dry_run_changes_nothing_and_says_what_it_would_do(user: User, hung: str) -> None:
    await terminate(user, hung)
    before = await user.see(hung)
    report, [found] = await sweep(user, LOOK)
    assert (report.dry_run, found.finding) == (True, HealFinding.WOULD_HEAL)
    assert await user.see(hung) == before
    assert await user.service.inventory.list_locks(hung) != []


async def test_a_lock_whose_owner_is_gone_is_released(user: User) -> None:
    await user.do(user.mci(), "create", spec=spec(1, ["aws"]))
    stray = {
        "path": user.mci(),
        "owner": user.mci("ghost"),
        "mode": "X",
        "run": "5b1b5c1e-0000-4000-8000-000000000000",
        "action": "suspend",
        "since": datetime.now(UTC) - timedelta(days=1),
    }
    await user.service.database.run_transaction(
        lambda connection: connection.execute(sa.insert(locks).values(**stray)).rowcount
    )
    _, [found] = await sweep(user)
    assert (found.path, found.status, found.finding) == (user.mci("ghost"), "lock", HealFinding.HEALED)
    assert await user.service.inventory.list_locks(user.mci()) == []


async def test_an_object_that_moves_although_no_action_does_goes_back(user: User) -> None:
    await user.do(user.mci(), "create", spec=spec(1, ["aws"]))
    stuck = sa.update(objects).where(objects.c.path == user.vm("aws0-1"))
    moving = {"status": "Suspending", "previous_status": "Running", "target_action": "suspend"}
    await user.service.database.run_transaction(lambda connection: connection.execute(stuck.values(**moving)).rowcount)
    _, [found] = await sweep(user)
    assert (found.status, found.finding, found.to) == ("Suspending", HealFinding.HEALED, "Running")
    assert (await sweep(user))[1] == []


async def test_two_sweeps_at_once_heal_once(user: User, hung: str) -> None:
    await terminate(user, hung)
    await asyncio.gather(*(sweep(user) for _ in range(3)))
    lines = [line for line in await user.history(hung) if line.action == "heal"]
    assert len(lines) == 1


async def test_a_late_write_of_a_dead_action_changes_nothing(user: User, hung: str) -> None:
    epoch = (await user.see(hung)).epoch
    await terminate(user, hung)
    await sweep(user)
    await user.heal_faults()
    ended = sa.select(actions.c.outcome).where(actions.c.epoch == epoch)
    outcome = await user.service.database.run_transaction(lambda connection: connection.execute(ended).scalar_one())
    assert outcome["message"].startswith("abandoned")
    assert (await user.see(hung)).status == "Running"


async def test_reports_are_kept_the_newest_first(user: User, hung: str, cli: Cli) -> None:
    await terminate(user, hung)
    first, _ = await sweep(user)
    second, _ = await sweep(user, LOOK)
    kept = await user.service.inventory.read_reports(2)
    assert [report.number for report in kept] == [second.number, first.number]
    assert kept[1] == first


async def test_the_command_heals_and_shows_what_was_found(user: User, hung: str, cli: Cli) -> None:
    await terminate(user, hung)
    dry = await cli("heal --dry-run --older-than 0.001s")
    assert (dry.code, "would heal" in dry.out, "dry run" in dry.err) == (0, True, True)
    ran = await cli("heal --older-than 0.001s")
    line = next(line for line in ran.out.splitlines() if line.startswith(f"{user.ns}/web/aws0-1"))
    assert line.split()[1] == "reboot"
    assert line.split()[-4:-1] == ["Rebooting", "healed", "Running"]
    told = await cli("heal report -n 2")
    assert (told.code, "healed" in told.out, "would heal" in told.out) == (0, True, True)
    assert (await cli("heal --older-than soon")).code == 2


async def test_a_sweep_exports_and_removes_what_is_older_than_the_retention(
    user: User, cli: Cli, tmp_path: Path
) -> None:
    await user.do(user.mci(), "create", spec=spec(2, ["aws"]))
    await user.do(user.vm("aws0-1"), "reboot")
    await user.do(user.mci(), "suspend")
    await user.do(user.mci(), "resume")
    inventory, client = user.service.inventory, user.asking.client
    retention = RetentionSweep(client, inventory, RetentionArchive(tmp_path), days=1e-9)
    healing, order = (
        HealingActivities(client, inventory, CompanionReconciler(client), retention=retention),
        SweepOptions(grace=10**6),
    )
    dry = await ActivityEnvironment().run(healing.sweep, order.model_copy(update={"dry_run": True}))
    assert dry.pruned == PruneResult()
    async with asyncio.timeout(PATIENCE):  # Temporal's lists come a moment after what they tell of
        while {line.action for line in await user.history(user.mci())} != {"resume"}:
            report = await ActivityEnvironment().run(healing.sweep, order)
    assert report.pruned
    assert report.pruned.actions
    assert "exported and removed" in (await cli("heal report")).err
    told = [json.loads(line) for file in tmp_path.iterdir() for line in file.read_text().splitlines()]
    mine = [row["action"] for row in told if row["table"] == "actions" and row["path"].startswith(user.mci())]
    assert mine == ["create", "reboot", "suspend"]
    assert (await cli(f"verify {user.ns}/web")).code == 0
    assert (await user.do(user.mci(), "reboot")).result is ActionResult.SUCCEEDED
    assert (await cli(f"verify {user.ns}/web")).code == 0


async def test_an_archive_that_cannot_be_written_is_told_and_nothing_is_removed(user: User, tmp_path: Path) -> None:
    await user.do(user.mci(), "create", spec=spec(1, ["aws"]))
    await user.do(user.mci(), "suspend")
    (file := tmp_path / "archive").write_text("no folder")
    inventory, client = user.service.inventory, user.asking.client
    healing = HealingActivities(
        client,
        inventory,
        CompanionReconciler(client),
        retention=RetentionSweep(client, inventory, RetentionArchive(file), days=1e-9),
    )
    async with asyncio.timeout(PATIENCE):
        found = PruneResult()
        while not found.problem:
            found = (await ActivityEnvironment().run(healing.sweep, SweepOptions(grace=10**6))).pruned or found
    assert (found.actions, found.lines) == (0, 0)
    assert "the archive cannot be written" in found.problem
    assert {line.action for line in await user.history(user.mci())} == {"create", "suspend"}


async def test_the_schedule_is_kept_as_the_settings_say(client: Client, user: User) -> None:
    schedule = client.get_schedule_handle(wire.HEAL_SCHEDULE)
    usual = user.service.settings.heal_interval
    try:
        for seconds in (60.0, usual):
            await ensure_heal_schedule(client, seconds)
            [interval] = (await schedule.describe()).schedule.spec.intervals
            assert interval.every == timedelta(seconds=seconds)
        before = (await user.service.inventory.read_reports(1))[:1]
        await schedule.trigger()
        async with asyncio.timeout(PATIENCE):
            while (await user.service.inventory.read_reports(1))[:1] == before:
                await asyncio.sleep(0.05)
        await ensure_heal_schedule(client, 0)
        await ensure_heal_schedule(client, 0)  # gone already: nothing to do
    finally:
        await ensure_heal_schedule(client, usual)


async def test_sweeps_come_by_themselves_at_their_interval(tmp_path: Path) -> None:
    async with opened(tmp_path, heal_interval="2") as site:
        user = User(ActionClient(site.client), site.stack, "t1")
        await user.do(user.mci(), "create", spec=spec(1, ["aws"]))
        for _ in range(2):  # not only the first time
            await user.fault("hang", verb="suspend", seconds=60)
            await user.admitted(user.mci(), "suspend")
            await user.until_delayed(user.vm("aws0-1"))
            await terminate(user, user.mci())
            await user.until_status(user.mci(), "Running:1 (R:1/1)")
            assert await site.stack.inventory.list_locks(user.mci()) == []
            await user.heal_faults()
        healed = list[HealFinding]()
        async with asyncio.timeout(PATIENCE):
            while len(healed) < 2:  # a sweep is on record when it has ended
                reports = await site.stack.inventory.read_reports(1_000)
                found = [each.finding for report in reports for each in report.found]
                healed = [each for each in found if each is HealFinding.HEALED]
                await asyncio.sleep(0.02)
        assert healed == [HealFinding.HEALED] * 2
        # Not more than the interval allows since the schedule is there; each may be late on a busy machine.
        created = (await site.client.get_schedule_handle(wire.HEAL_SCHEDULE).describe()).info.created_at
        assert len(reports) < (max(report.at for report in reports) - created) / timedelta(seconds=2) + 2
