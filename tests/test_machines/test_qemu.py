"""QEMU as the hypervisor: real processes, disks and live migrations, and what a crash of ours leaves of them."""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import select
import signal
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from client.actions import ActionClient
from domain.errors import Category, Refused, Rejected, Superseded, Unavailable
from domain.machines.ports import ABSENT, HypervisorFacts, HypervisorOrder
from providers.machines.qemu import QemuHypervisor
from providers.machines.qemu.node import NodeOrder, QemuNode
from providers.machines.qemu.process import QemuProcess
from tests.patience import PATIENCE, progress_of
from tests.stack import family_of, opened
from tests.test_machines.mortal import die_before, kill_amid_orders
from tests.test_machines.qemu import end_qemu_processes, needs_qemu, qemu_options
from tests.test_machines.site import MachineSite
from tests.test_machines.test_hypervisor import DB, DISK, Rack, open_rack
from workers.connections import check_connections
from workers.machines import MachineFamily

pytestmark = needs_qemu


@pytest.fixture
async def rack(tmp_path: Path) -> AsyncIterator[Rack]:
    async with open_rack("qemu", tmp_path) as rack:
        await rack.machine(memory=1)
        yield rack


def process(rack: Rack, node: str) -> QemuProcess:
    assert isinstance(rack.hypervisor, QemuHypervisor)
    options = rack.hypervisor._options
    return QemuProcess(options, options.folder_of_object(DB), node)


async def status(rack: Rack, node: str) -> str:
    async with process(rack, node).open_monitor() as monitor:
        return await monitor.read_status()


@pytest.mark.parametrize("paused", [False, True])
async def test_a_machine_moves_between_two_processes_while_it_runs(rack: Rack, paused: bool) -> None:
    await rack.tell("create", DISK, size=1)
    await rack.tell("attach", DISK, machine=DB)
    if paused:
        await rack.tell("pause", DB)
    assert (await rack.tell("migrate", DB, node="n2")).node == "n2"
    assert not process(rack, "n1").find_pid()
    assert await status(rack, "n2") == ("paused" if paused else "running")
    assert (await rack.hypervisor.describe_object(DISK)).state == "attached"
    assert (await rack.tell("migrate", DB, node="n1")).node == "n1"
    assert await status(rack, "n1") == ("paused" if paused else "running")


async def test_a_disk_comes_and_goes_while_the_machine_runs_and_stays_over_a_stop(rack: Rack) -> None:
    assert isinstance(rack.hypervisor, QemuHypervisor)
    disk = rack.hypervisor._disk_file(DISK)
    await rack.tell("create", DISK, size=1)
    await rack.tell("attach", DISK, machine=DB)
    async with process(rack, "n1").open_monitor() as monitor:
        assert await monitor.has_disk(disk)
    await rack.tell("stop", DB)
    await rack.tell("start", DB)
    async with process(rack, "n1").open_monitor() as monitor:
        assert await monitor.has_disk(disk)
    await rack.tell("detach", DISK, machine=DB)
    async with process(rack, "n1").open_monitor() as monitor:
        assert not await monitor.has_disk(disk)
    await rack.tell("delete", DISK)
    await rack.tell("destroy", DISK)
    assert not disk.file.exists()


async def test_a_process_that_died_is_seen_and_can_be_started_again(rack: Rack) -> None:
    before = process(rack, "n1").find_pid()
    ending = os.pidfd_open(before)
    signal.pidfd_send_signal(ending, signal.SIGKILL)
    await asyncio.to_thread(select.select, [ending], [], [])  # readable when all of its files are closed
    os.close(ending)
    assert [facts.state for facts in await rack.hypervisor.list_machines_on("n1")] == ["stopped"]
    assert (await rack.hypervisor.describe_object(DB)).state == "stopped"
    assert (await rack.tell("start", DB)).state == "running"
    assert process(rack, "n1").find_pid() not in (0, before)


async def test_a_disk_that_another_process_has_is_waited_for(rack: Rack) -> None:
    """The order is repeated: such a process may be one of ours that is just ending."""
    await rack.tell("stop", DB)
    assert isinstance(rack.hypervisor, QemuHypervisor)
    boot = rack.hypervisor._disk_file(DB).file
    holder = await asyncio.create_subprocess_exec("qemu-io", str(boot), stdin=PIPE, stdout=PIPE)
    assert holder.stdin
    assert holder.stdout
    holder.stdin.write(b"length\n")
    await holder.stdout.readline()  # it has opened the file
    with pytest.raises(Unavailable, match="another process using the image"):
        await rack.tell("start", DB)
    await holder.communicate(b"quit\n")
    assert (await rack.tell("start", DB)).state == "running"


async def test_a_pid_that_somebody_else_has_now_is_not_ours(rack: Rack, tmp_path: Path) -> None:
    await rack.tell("stop", DB)
    file = next(tmp_path.rglob("machine/db")) / "n1.pid"
    file.write_text(str(os.getpid()))
    assert process(rack, "n1").find_pid() == 0
    assert (await rack.tell("start", DB)).state == "running"


async def test_a_late_order_and_an_order_beside_another_are_refused(rack: Rack, tmp_path: Path) -> None:
    await rack.hypervisor.perform_order("pause", HypervisorOrder(DB, "machine", "second", {}, epoch=2))
    with pytest.raises(Superseded):
        await rack.hypervisor.perform_order("resume", HypervisorOrder(DB, "machine", "first", {}, epoch=1))
    assert await status(rack, "n1") == "paused"
    with (tmp_path / "qemu" / "locks" / DB).open("r+") as lock:  # as a worker that froze in its order
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Unavailable, match="another order"):
            await rack.hypervisor.perform_order("resume", HypervisorOrder(DB, "machine", "third", {}, epoch=3))
        assert (await rack.hypervisor.describe_object(DB)).state == "paused"


async def test_what_qemu_refuses_leaves_nothing(rack: Rack) -> None:
    assert isinstance(rack.hypervisor, QemuHypervisor)
    options = rack.hypervisor._options
    broken = QemuHypervisor(options.model_copy(update={"program": "false"}), rack.database)
    order = HypervisorOrder(f"{DB}2", "machine", "broken", {"image": "u", "memory": 1}, epoch=1)
    with pytest.raises(Rejected, match="QEMU did not start"):
        await broken.perform_order("create", order)
    assert (await rack.hypervisor.describe_object(f"{DB}2")).state == "absent"
    assert not rack.hypervisor._disk_file(f"{DB}2").file.exists()
    with pytest.raises(Rejected, match="there is no file for the image v"):
        await rack.tell("create", "image:v")
    with pytest.raises(Rejected, match="no worker serves node:n3"):
        await rack.tell("create", "node:n3")


async def test_a_worker_killed_at_any_moment_of_a_migration_leaves_one_machine(rack: Rack, tmp_path: Path) -> None:
    chance = random.Random(7)
    for round_number in range(8):
        await kill_amid_orders(tmp_path, "migrations", round_number * 10_000 + 1, chance.uniform(0, 0.6))
        # A target whose start was under way comes a moment after the death: the look after that ends it.
        facts = await until_one_process(rack)
        assert await status(rack, facts.node) == "running"


async def until_one_process(rack: Rack) -> HypervisorFacts:
    async with asyncio.timeout(PATIENCE):
        while True:
            facts = await rack.hypervisor.describe_object(DB)
            living = [node for node in ("n1", "n2") if process(rack, node).find_pid()]
            if (facts.state, [facts.node]) == ("running", living):
                return facts
            await asyncio.sleep(0.05)


async def test_a_worker_that_dies_between_the_connection_and_the_migration_leaves_the_machine_where_it_was(
    rack: Rack, tmp_path: Path
) -> None:
    """The source holds a connection on which nothing comes, and the target waits for it; the next look ends that."""
    assert await die_before(tmp_path, "migrate", "migrations", 1) == -signal.SIGKILL
    assert process(rack, "n2").find_pid()
    assert await status(rack, "n2") == "inmigrate"
    assert (await until_one_process(rack)).node == "n1"
    assert (await rack.tell("migrate", DB, node="n2", epoch=2)).node == "n2"
    assert (await until_one_process(rack)).node == "n2"


@pytest.mark.parametrize("fails", [False, True])
async def test_a_node_stays_until_the_machine_that_leaves_it_has_left(
    rack: Rack, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    send, sending, go = QemuNode._send, asyncio.Event(), asyncio.Event()

    async def send_later(node: QemuNode, order: NodeOrder, process: QemuProcess) -> None:
        sending.set()
        await go.wait()
        if fails:
            raise Rejected("the line is cut")
        await send(node, order, process)

    monkeypatch.setattr(QemuNode, "_send", send_later)
    await rack.machine(memory=1)
    await rack.tell("maintain", "node:n1")
    move = asyncio.create_task(rack.tell("migrate", DB, node="n2"))
    await sending.wait()
    with pytest.raises(Unavailable, match="has not left node:n1 yet"):
        await rack.tell("decommission", "node:n1")
    go.set()
    await asyncio.gather(move, return_exceptions=True)
    if fails:
        with pytest.raises(Rejected, match="is home to 1 machine"):
            await rack.tell("decommission", "node:n1")
    else:
        assert (await rack.tell("decommission", "node:n1")).state == ABSENT


def test_a_host_without_qemu_refuses_to_start(tmp_path: Path) -> None:
    file = tmp_path / "connections.yaml"
    file.write_text(
        yaml.safe_dump({"hypervisor": {"provider": "qemu", "folder": "/tmp", "nodes": ["a"], "program": "qemu-none"}})
    )
    with pytest.raises(Refused, match="needs the program qemu-none") as refused:
        check_connections(file, [])
    assert refused.value.category is Category.INVALID
    file.write_text(yaml.safe_dump({"hypervisor": {"provider": "qemu", "folder": "/tmp", "nodes": []}}))
    with pytest.raises(Refused, match="nodes"):
        check_connections(file, [])


async def test_scenario_1_with_a_real_machine(tmp_path: Path) -> None:
    """A hidden migration moves a running machine; a destroy that comes meanwhile waits, and then ends it."""
    options = qemu_options(tmp_path / "qemu")
    image = next(iter(options.images.values()))
    told = {"provider": "qemu", "folder": str(options.folder), "nodes": ["s-1", "s-2"], "images": {"s": str(image)}}
    file = tmp_path / "connections.yaml"
    file.write_text(yaml.safe_dump({"hypervisor": told}))
    try:
        async with opened(tmp_path / "home", connections=str(file), call_timeout="30", patience="60") as running:
            site = MachineSite(ActionClient(running.client), running.stack, "s")
            for node in (1, 2):
                await site.to(site.node(node), "create", memory=4)
            await site.to(site.image, "create")
            await site.to(site.account, "create")
            await site.to(site.space(), "create")
            db = site.machine()
            assert await site.to(db, "create", image="s", node="s-1") == "RUNNING"
            assert await site.to(db, "add-disk", disk="d1", size=1) == "RUNNING"
            with (options.folder / "locks" / db).open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # the migration's order waits here until we let it go
                moving = await site.admitted(db, "migrate", node="s-2")
                destroy = await site.admitted(db, "destroy")
                assert await site.status(db) == "DESTROYING"
                assert (await progress_of(site.asking, db)).step == "waiting for migrate to end"
            assert (await site.outcome(moving)).result == "succeeded"
            assert (await site.outcome(destroy)).status == "DESTROYED"
            hypervisor = family_of(running.stack, MachineFamily).hypervisor
            assert [facts.path for facts in await hypervisor.list_existing_objects("account:s", "")] == [
                "account:s:cloudspace:dev"
            ]
            assert not list(options.folder.rglob("*.pid"))
    finally:
        end_qemu_processes(tmp_path)
