"""QEMU when things go wrong: killed, slow, wrong, answering twice, full. What runs equals what is on record."""

from __future__ import annotations

import asyncio
import os
import random
import select
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from client.actions import ActionClient
from domain.errors import NoCapacity, Rejected, Unavailable
from domain.invariants import VerificationReport
from domain.machines.ports import ABSENT
from domain.model import ReadQuery
from domain.wire import VERIFY_ACTIVITY
from providers.machines.qemu import QemuHypervisor
from tests.patience import PATIENCE
from tests.stack import opened
from tests.test_machines.qemu import end_qemu_processes, needs_qemu, qemu_options
from tests.test_machines.site import MachineSite
from tests.test_machines.test_hypervisor import DB, DISK, Rack, open_rack

pytestmark = needs_qemu


def wrapped(folder: Path, name: str, script: str) -> str:
    """A program that behaves otherwise than QEMU's; `$real` is QEMU's own."""
    program = folder / f"{name}-wrapped"
    program.write_text(f'#!/bin/sh\nreal={name}\n{script}\nexec $real "$@"\n')
    program.chmod(0o755)
    return str(program)


def change(rack: Rack, **options: str) -> None:
    """Changes the programs of the hypervisor."""
    assert isinstance(rack.hypervisor, QemuHypervisor)
    rack.hypervisor = QemuHypervisor(rack.hypervisor._options.model_copy(update=options), rack.database)


def living(folder: Path) -> Counter[str]:
    """The machines that run with disks below a folder, by the words of all processes: nothing of ours is asked."""
    found: Counter[str] = Counter()
    for process in Path("/proc").iterdir():
        with suppress(OSError):
            words = (process / "cmdline").read_text()
            if words.startswith("qemu-system") and str(folder) in words:
                found[words.partition("guest=")[2].partition(",")[0].rpartition(":")[2]] += 1
    return found


async def kill(pid: int) -> None:
    """Until all of its files are closed, and nobody takes it for alive."""
    ending = os.pidfd_open(pid)
    signal.pidfd_send_signal(ending, signal.SIGKILL)
    await asyncio.to_thread(select.select, [ending], [], [])
    os.close(ending)


@pytest.fixture
async def rack(tmp_path: Path) -> AsyncIterator[Rack]:
    async with open_rack("qemu", tmp_path) as rack:
        yield rack


@pytest.mark.parametrize(
    "script",
    [
        '$real "$@"; exec $real "$@"',  # twice: the second says that the pid file is in use
        '$real "$@"; exit 1',  # the answer is wrong
        '$real "$@"; kill -9 $$',  # it dies before it answers
        "sleep 0.3",
    ],
    ids=["twice", "wrong", "killed", "slow"],
)
async def test_an_answer_of_qemu_is_not_trusted(rack: Rack, tmp_path: Path, script: str) -> None:
    change(rack, program=wrapped(tmp_path, "qemu-system-x86_64", script))
    assert (await rack.machine(memory=1)).state == "running"
    assert living(tmp_path) == {"db": 1}
    assert (await rack.tell("migrate", DB, node="n2")).node == "n2"
    assert living(tmp_path) == {"db": 1}
    assert (await rack.tell("stop", DB)).state == "stopped"
    assert living(tmp_path) == {}


@pytest.mark.parametrize(
    ("script", "error", "words"),
    [
        ("kill -9 $$", Rejected, "exit code -9"),
        ("exit 0", Rejected, "no reason was given"),
        ("echo 'cannot set up guest memory: Cannot allocate memory' >&2; exit 1", NoCapacity, "Cannot allocate memory"),
    ],
    ids=["killed", "lying", "full"],
)
async def test_a_qemu_that_does_not_start_is_told_and_leaves_nothing(
    rack: Rack, tmp_path: Path, script: str, error: type[Rejected], words: str
) -> None:
    change(rack, program=wrapped(tmp_path, "qemu-system-x86_64", script))
    with pytest.raises(error, match=words):
        await rack.machine(memory=1)
    assert (await rack.hypervisor.describe_object(DB)).state == ABSENT
    assert not list(tmp_path.rglob("boot.qcow2"))
    change(rack, program="qemu-system-x86_64")
    assert (await rack.machine(memory=1)).state == "running"


@pytest.mark.parametrize(
    ("script", "error", "words"),
    [
        ("echo 'No space left on device' >&2; exit 1", NoCapacity, "No space left"),
        ('$real "$@"; kill -9 $$', Rejected, "exit code -9"),
        ("exit 0", Rejected, "could not be made"),
    ],
    ids=["full", "killed", "lying"],
)
async def test_a_disk_that_is_not_made_leaves_nothing(
    rack: Rack, tmp_path: Path, script: str, error: type[Rejected], words: str
) -> None:
    change(rack, image_program=wrapped(tmp_path, "qemu-img", script))
    with pytest.raises(error, match=words):
        await rack.tell("create", DISK, size=1)
    assert (await rack.hypervisor.describe_object(DISK)).state == ABSENT
    assert [file for file in tmp_path.rglob("disk.*") if "qemu" in file.parts] == []


async def test_a_qemu_that_hangs_is_ended_when_the_order_is_given_up(rack: Rack, tmp_path: Path) -> None:
    asleep = tmp_path / "asleep"
    change(rack, program=wrapped(tmp_path, "qemu-system-x86_64", f"echo $$ >{asleep}; exec sleep 1000"))
    order = asyncio.create_task(rack.machine(memory=1))
    async with asyncio.timeout(PATIENCE):
        while not asleep.exists() or not asleep.read_text():
            await asyncio.sleep(0.01)
    order.cancel()
    await asyncio.gather(order, return_exceptions=True)
    assert not Path(f"/proc/{int(asleep.read_text())}").exists()
    change(rack, program="qemu-system-x86_64")
    assert (await rack.hypervisor.describe_object(DB)).state == "stopped"  # an action goes on from here
    assert (await rack.tell("start", DB)).state == "running"
    assert living(tmp_path) == {"db": 1}


async def test_a_qemu_that_is_frozen_is_unavailable_and_obeys_once_it_wakes(
    rack: Rack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rack.machine(memory=1)
    monkeypatch.setattr("providers.machines.qemu.process.QMP_SECONDS", 0.5)
    pid = int(next(tmp_path.rglob("db/n1.pid")).read_text())
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(Unavailable, match="does not answer"):
            await rack.tell("pause", DB)
    finally:
        os.kill(pid, signal.SIGCONT)
    monkeypatch.undo()
    assert (await rack.tell("pause", DB)).state == "paused"
    assert living(tmp_path) == {"db": 1}


# It says that it runs, and is dead by then: all of its files are closed when it is a zombie, or gone.
DIES = r"""
$real "$@"; pid=$(cat n2.pid); kill -9 $pid
while grep -q '^State:[[:space:]]*[^Z]' /proc/$pid/status 2>/dev/null; do sleep 0.05; done
exit 0
"""


async def test_a_target_that_dies_in_a_migration_leaves_the_source_running(rack: Rack, tmp_path: Path) -> None:
    await rack.machine(memory=1)
    change(rack, program=wrapped(tmp_path, "qemu-system-x86_64", DIES))
    with pytest.raises(Rejected, match="did not start"):
        await rack.tell("migrate", DB, node="n2")
    facts = await rack.hypervisor.describe_object(DB)
    assert (facts.state, facts.node) == ("running", "n1")
    assert living(tmp_path) == {"db": 1}


async def verified(site: MachineSite, path: str) -> VerificationReport:
    query = ReadQuery(path=path)
    return await site.asking.run_query(VERIFY_ACTIVITY, query, VerificationReport, seconds=PATIENCE)


# Every third start is slow, every fourth answers twice, every fifth is refused.
FLAKY = """
n=$(($(cat {count} 2>/dev/null || echo 0) + 1)); echo $n >{count}
[ $((n % 3)) = 0 ] && sleep 0.5
[ $((n % 4)) = 0 ] && {{ $real "$@"; exec $real "$@"; }}
[ $((n % 5)) = 0 ] && exit 1
"""


async def test_what_runs_equals_the_records_after_a_bad_day(tmp_path: Path) -> None:
    """Machines come, go, move and die while QEMU fails in every way; what runs is what the inventory says."""
    options, chance = qemu_options(tmp_path / "qemu"), random.Random(22)
    image = str(next(iter(options.images.values())))
    program = wrapped(tmp_path, "qemu-system-x86_64", FLAKY.format(count=tmp_path / "count"))
    told: dict[str, Any] = {"provider": "qemu", "folder": str(options.folder), "nodes": ["s-1", "s-2"]}
    file = tmp_path / "connections.yaml"
    file.write_text(yaml.safe_dump({"hypervisor": {**told, "images": {"s": image}, "program": program}}))
    try:
        async with opened(tmp_path / "home", connections=str(file), call_timeout="30", patience="60") as running:
            site = MachineSite(ActionClient(running.client), running.stack, "s")
            for node in (1, 2):
                await site.to(site.node(node), "create", memory=16)
            for path in (site.image, site.account, site.space()):
                await site.to(path, "create")
            names = [f"m{number}" for number in range(6)]

            async def live(name: str) -> None:
                path = site.machine(name)
                for action in ("create", "stop", "start", "migrate"):
                    ticket = await site.ask(path, action, **({"image": "s", "memory": 1} if action == "create" else {}))
                    if ticket.admission.refusal is None:  # else what came before it has failed
                        await site.outcome(ticket)

            await asyncio.gather(*map(live, names))
            for name in chance.sample(names, 2):
                for pid in options.folder.rglob(f"{name}/*.pid"):
                    await kill(int(pid.read_text()))
            for path in {site.machine(name) for name in names}:
                if (await verified(site, path)).findings:  # it was killed: it is stopped and started, as the docs say
                    await site.to(path, "stop")
                    while (await site.do(path, "start")).status != "RUNNING":
                        continue
            statuses = {name: await site.status(site.machine(name)) for name in names}
            assert living(options.folder) == {name: 1 for name, status in statuses.items() if status == "RUNNING"}
            assert (await verified(site, site.account)).findings == []
    finally:
        end_qemu_processes(tmp_path)
