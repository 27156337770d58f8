"""Snapshots of machines: at every hypervisor, with QEMU's real disks and memory, and by actions of users."""

from __future__ import annotations

import asyncio
import random
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from domain.errors import Rejected, Unavailable
from domain.machines.ports import HypervisorFacts, HypervisorOrder, MachineSnapshot
from domain.machines.rules import MAX_SNAPSHOTS
from providers.machines.qemu import QemuHypervisor
from providers.machines.qemu.process import DiskFile, QemuMonitor, QemuProcess
from providers.machines.qemu.program import run_program
from providers.machines.qemu.snapshots import SnapshotFiles
from tests.patience import PATIENCE
from tests.test_machines.mortal import kill_amid_orders
from tests.test_machines.qemu import needs_qemu
from tests.test_machines.site import MachineSite
from tests.test_machines.test_hypervisor import DB, DISK, Rack, open_rack


@pytest.fixture(params=["simulated", pytest.param("qemu", marks=needs_qemu)])
async def rack(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rack]:
    async with open_rack(request.param, tmp_path) as rack:
        await rack.machine(memory=1)
        yield rack


@pytest.fixture
async def qemu(tmp_path: Path) -> AsyncIterator[Rack]:
    async with open_rack("qemu", tmp_path) as rack:
        await rack.machine(memory=1)
        await rack.tell("create", DISK, size=1)
        await rack.tell("attach", DISK, machine=DB)
        yield rack


def names(facts: HypervisorFacts) -> list[str]:
    return [snapshot.name for snapshot in facts.snapshots]


# The contract of every hypervisor.


async def test_a_snapshot_is_of_the_disks_attached_then_and_has_memory_if_the_machine_had(rack: Rack) -> None:
    await rack.tell("snapshot", DB, snapshot="bare", epoch=1)
    await rack.tell("create", DISK, size=1)
    await rack.tell("attach", DISK, machine=DB)
    await rack.tell("pause", DB, epoch=2)
    await rack.tell("snapshot", DB, snapshot="paused", epoch=3)
    await rack.tell("stop", DB, epoch=4)
    facts = await rack.tell("snapshot", DB, snapshot="halted", epoch=5)
    assert facts.state == "stopped"
    assert facts.snapshots == (
        MachineSnapshot("bare", True, ()),
        MachineSnapshot("paused", True, (DISK,)),
        MachineSnapshot("halted", False, (DISK,)),
    )
    assert (await rack.hypervisor.describe_object(DB)).snapshots == facts.snapshots
    for epoch, (name, state) in enumerate([("halted", "stopped"), ("paused", "stopped"), ("paused", "running")], 6):
        if state == "running":
            await rack.tell("start", DB, epoch=epoch)
        assert (await rack.tell("rollback", DB, snapshot=name, epoch=epoch)).state == state


async def test_what_a_snapshot_cannot_do_is_refused(rack: Rack) -> None:
    await rack.tell("snapshot", DB, snapshot="s", epoch=1)
    with pytest.raises(Rejected, match="has a snapshot s already"):
        await rack.tell("snapshot", DB, snapshot="s", epoch=2)
    with pytest.raises(Rejected, match="has no snapshot t"):
        await rack.tell("rollback", DB, snapshot="t", epoch=3)
    await rack.tell("stop", DB, epoch=4)
    await rack.tell("snapshot", DB, snapshot="halted", epoch=5)
    await rack.tell("start", DB, epoch=6)
    with pytest.raises(Rejected, match="is of the stopped machine"):
        await rack.tell("rollback", DB, snapshot="halted", epoch=7)
    await rack.tell("create", DISK, size=1)
    await rack.tell("attach", DISK, machine=DB)
    with pytest.raises(Rejected, match="is of other disks"):
        await rack.tell("rollback", DB, snapshot="s", epoch=8)
    assert (await rack.hypervisor.describe_object(DB)).state == "running"


async def test_an_order_about_a_snapshot_has_one_effect_per_token(rack: Rack) -> None:
    for verb in ("snapshot", "rollback", "delete-snapshot"):
        before = await rack.count_effective_orders(DB)
        for _ in range(3):
            await rack.tell(verb, DB, token=verb, snapshot="s", epoch=1)
        assert await rack.count_effective_orders(DB) == before + 1
    assert names(await rack.tell("delete-snapshot", DB, snapshot="s", epoch=2)) == []  # nothing to do


async def test_snapshots_stay_over_a_move_and_in_the_bin_and_end_with_the_machine(rack: Rack) -> None:
    await rack.tell("snapshot", DB, snapshot="s", epoch=1)
    assert names(await rack.tell("migrate", DB, node="n2", epoch=2)) == ["s"]
    assert names(await rack.tell("rollback", DB, snapshot="s", epoch=3)) == ["s"]
    for epoch, verb in enumerate(("stop", "delete", "restore"), 4):
        assert names(await rack.tell(verb, DB, epoch=epoch)) == ["s"]
    assert names(await rack.tell("rollback", DB, snapshot="s", epoch=7)) == ["s"]
    for epoch, verb in enumerate(("delete", "destroy"), 8):
        facts = await rack.tell(verb, DB, epoch=epoch)
    assert facts.snapshots == ()


# QEMU: what is in the disks.


def process_of(rack: Rack) -> QemuProcess:
    assert isinstance(rack.hypervisor, QemuHypervisor)
    options = rack.hypervisor._options
    return QemuProcess(options, options.folder_of_object(DB), "n1")


def disks_of(rack: Rack) -> list[DiskFile]:
    assert isinstance(rack.hypervisor, QemuHypervisor)
    return [rack.hypervisor._disk_file(DB), rack.hypervisor._disk_file(DISK)]


async def run_io(monitor: QemuMonitor, disk: DiskFile, command: str) -> str:
    """Reads or writes a disk of a running machine, as its guest would."""
    words = f'qemu-io {disk.name} "{command}"'
    return str(await monitor.execute("human-monitor-command", **{"command-line": words}))


def run_io_on_file(disk: DiskFile, command: str) -> str:
    done = subprocess.run(["qemu-io", "-c", command, str(disk.file)], check=False, capture_output=True, text=True)
    return done.stdout + done.stderr


async def tags_in_files(rack: Rack) -> list[list[str]]:
    """The tags in the disks of a machine that is stopped."""
    assert isinstance(rack.hypervisor, QemuHypervisor)
    hypervisor = rack.hypervisor
    files = SnapshotFiles(hypervisor._options, hypervisor._nodes, DB, "", disks_of(rack))
    return list((await files._read_tags()).values())


@needs_qemu
async def test_a_running_machine_gets_all_of_its_disks_back(qemu: Rack) -> None:
    async with process_of(qemu).open_monitor() as monitor:
        for disk in disks_of(qemu):
            await run_io(monitor, disk, "write -P 65 0 512")
    await qemu.tell("snapshot", DB, snapshot="s", epoch=1)
    async with process_of(qemu).open_monitor() as monitor:
        for disk in disks_of(qemu):
            await run_io(monitor, disk, "write -P 66 0 512")
    pid = process_of(qemu).find_pid()
    assert (await qemu.tell("rollback", DB, snapshot="s", epoch=2)).state == "running"
    assert process_of(qemu).find_pid() == pid
    async with process_of(qemu).open_monitor() as monitor:
        assert await monitor.read_status() == "running"
        for disk in disks_of(qemu):
            assert "verification failed" not in await run_io(monitor, disk, "read -P 65 0 512")
        assert await monitor.execute("query-jobs") == []


@needs_qemu
async def test_a_halted_machine_gets_all_of_its_disks_back(qemu: Rack) -> None:
    await qemu.tell("stop", DB, epoch=1)
    for disk in disks_of(qemu):
        run_io_on_file(disk, "write -P 65 0 512")
    await qemu.tell("snapshot", DB, snapshot="s", epoch=2)
    for disk in disks_of(qemu):
        run_io_on_file(disk, "write -P 66 0 512")
    await qemu.tell("rollback", DB, snapshot="s", epoch=3)
    for disk in disks_of(qemu):
        assert "verification failed" not in run_io_on_file(disk, "read -P 65 0 512")
    await qemu.tell("delete-snapshot", DB, snapshot="s", epoch=4)
    assert await tags_in_files(qemu) == [[], []]


@needs_qemu
async def test_a_part_of_a_snapshot_is_not_one_and_is_removed(qemu: Rack) -> None:
    await qemu.tell("stop", DB, epoch=1)
    boot, _ = disks_of(qemu)
    hypervisor = qemu.hypervisor
    assert isinstance(hypervisor, QemuHypervisor)
    order = HypervisorOrder(DB, "machine", "cut off", {"snapshot": "s"}, epoch=2)
    await qemu.database.run_transaction(  # as far as a worker comes that dies after the first disk
        lambda connection: hypervisor._judge_order(connection, "snapshot", order)
    )
    assert not await run_program("qemu-img", "snapshot", "-c", "s@2", str(boot.file))
    assert names(await qemu.hypervisor.describe_object(DB)) == []
    assert await tags_in_files(qemu) == [[], []]
    assert names(await qemu.hypervisor.perform_order("snapshot", order)) == ["s"]
    assert await tags_in_files(qemu) == [["s@2"], ["s@2"]]


@needs_qemu
@pytest.mark.parametrize("state", ["running", "stopped"])
async def test_a_worker_killed_at_any_moment_leaves_whole_snapshots_and_tells_them(
    qemu: Rack, tmp_path: Path, state: str
) -> None:
    chance = random.Random(11)
    if state == "stopped":
        await qemu.tell("stop", DB)
    for round_number in range(5):
        await kill_amid_orders(tmp_path, "snapshots", round_number * 3_000 + 3_000, chance.uniform(0, 1.0))
        facts = await patiently(partial(roll_back_somewhere, qemu, f"back {round_number}"))
        assert facts.state == state
    told = names(await qemu.hypervisor.describe_object(DB))
    await qemu.tell("stop", DB, epoch=100_000)
    assert [[tag.partition("@")[0] for tag in tags] for tags in await tags_in_files(qemu)] == [told, told]


async def patiently(act: Callable[[], Awaitable[HypervisorFacts]]) -> HypervisorFacts:
    """As actions do it: a qemu-img that outlived its worker is waited for."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await act()
            except Unavailable:
                await asyncio.sleep(0.05)


async def roll_back_somewhere(rack: Rack, token: str) -> HypervisorFacts:
    """Rolls back to the newest snapshot; to a new one if there is none."""
    facts = await rack.hypervisor.describe_object(DB)
    if not facts.snapshots:
        name = f"kept{facts.epoch}"
        facts = await rack.tell("snapshot", DB, token=f"{token} {name}", snapshot=name, epoch=facts.epoch + 1)
    newest = names(facts)[-1]
    return await rack.tell("rollback", DB, token=f"{token} {newest}", snapshot=newest, epoch=facts.epoch + 1)


# By actions.


async def test_a_user_takes_a_snapshot_goes_back_to_it_and_deletes_it(site: MachineSite) -> None:
    db = (await site.with_machine()).machine()
    await site.to(db, "add-disk", disk="d1")
    assert await site.to(db, "snapshot", snapshot="before") == "RUNNING"
    assert (await site.see(db)).info["snapshots"] == {"before": {"memory": True, "disks": ["d1"]}}
    assert await site.to(db, "rollback", snapshot="before") == "RUNNING"
    await site.to(db, "delete")
    await site.to(db, "restore")
    assert await site.to(db, "rollback", snapshot="before") == "HALTED"
    assert await site.to(db, "delete-snapshot", snapshot="before") == "HALTED"
    assert "snapshots" not in (await site.see(db)).info
    await site.at_rest()


async def test_what_does_not_fit_is_refused_before_anything_is_ordered(site: MachineSite) -> None:
    db = (await site.with_machine()).machine()
    await site.to(db, "stop")
    await site.to(db, "snapshot", snapshot="halted")
    assert "has a snapshot halted already" in await site.refused(db, "snapshot", snapshot="halted")
    assert "has no snapshot other" in await site.refused(db, "rollback", snapshot="other")
    assert "has no snapshot other" in await site.refused(db, "delete-snapshot", snapshot="other")
    await site.to(db, "add-disk", disk="d1")
    assert "with other disks: d1" in await site.refused(db, "rollback", snapshot="halted")
    await site.to(db, "start")
    assert "when it was halted" in await site.refused(db, "rollback", snapshot="halted")


async def test_a_machine_has_so_many_snapshots_and_no_more(site: MachineSite) -> None:
    db = (await site.with_machine()).machine()
    for number in range(MAX_SNAPSHOTS):
        await site.seed(db, "snapshot", snapshot=f"s{number}")
    assert f"has {MAX_SNAPSHOTS} snapshots, which is the most" in await site.refused(db, "snapshot", snapshot="more")
    await site.to(db, "delete-snapshot", snapshot="s0")
    await site.to(db, "snapshot", snapshot="more")
    assert list((await site.see(db)).info["snapshots"])[-1] == "more"


async def test_a_snapshot_that_fails_leaves_the_machine_as_it_was(site: MachineSite) -> None:
    db = (await site.with_machine()).machine()
    await site.fault("fail", db, verb="snapshot", times=1)
    outcome = await site.do(db, "snapshot", snapshot="s")
    assert (outcome.result, outcome.status) == ("failed", "RUNNING")
    assert "snapshots" not in (await site.see(db)).info
    assert await site.to(db, "snapshot", snapshot="s") == "RUNNING"
