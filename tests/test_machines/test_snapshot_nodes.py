"""Snapshots by actions of several workers, with real QEMU machines: on two nodes, and with a worker that is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.patience import PATIENCE
from tests.test_machines.hosts import Hosts, until, write_connections
from tests.test_machines.qemu import needs_qemu
from tests.test_machines.test_hypervisor import DB
from tests.test_machines.test_qemu_chaos import living, wrapped

pytestmark = needs_qemu


def tags_in_disks(hosts: Hosts) -> dict[str, list[str]]:
    """The snapshots in each disk of the halted machine, by what the file says itself."""
    found = {}
    for file in (
        *hosts.folder.glob("qemu/account/a/**/db/*.qcow2"),
        *hosts.folder.glob("qemu/account/a/disk/**/*.qcow2"),
    ):
        said = subprocess.run(
            ["qemu-img", "info", "--output=json", str(file)], check=True, capture_output=True, text=True
        ).stdout
        tags = [snapshot["name"] for snapshot in json.loads(said).get("snapshots", [])]
        found[file.parent.name] = [tag.partition("@")[0] for tag in tags]
    return found


async def snapshots(hosts: Hosts) -> list[str]:
    return list((await hosts.site.inventory.read_object(DB)).info.get("snapshots", {}))


async def test_snapshots_are_taken_and_used_on_whichever_node_the_machine_is(hosts: Hosts) -> None:
    write_connections(hosts, address="127.0.0.1")
    await hosts.serve("n1")
    await hosts.serve("n2", "--queues", "node-n2")
    await hosts.make_network()
    await hosts.to(DB, "create", image="u", memory=1, node="n2")
    await hosts.to(DB, "add-disk", disk="d1", size=1)
    assert await hosts.to(DB, "snapshot", snapshot="there") == "RUNNING"
    await hosts.to(DB, "migrate", node="n1")
    assert await hosts.to(DB, "rollback", snapshot="there") == "RUNNING"
    assert await hosts.to(DB, "snapshot", snapshot="here") == "RUNNING"
    await hosts.to(DB, "migrate", node="n2")
    assert await hosts.to(DB, "rollback", snapshot="here") == "RUNNING"
    assert await hosts.to(DB, "delete-snapshot", snapshot="there") == "RUNNING"
    assert hosts.processes() == {"n2": "n2"}
    await hosts.to(DB, "stop")
    assert await hosts.to(DB, "snapshot", snapshot="halted") == "HALTED"
    assert await snapshots(hosts) == ["here", "halted"]
    assert tags_in_disks(hosts) == {"db": ["here", "halted"], "d1": ["here", "halted"]}
    code, said = await hosts.site.starter("verify")
    assert code == 0, said


# The second disk of a halted machine waits, so that a worker can be killed when the first one has its snapshot.
HELD_SECOND = 'case "$*" in *"snapshot -c"*"/disk/"*) touch {held}; while [ ! -e {go} ]; do sleep 0.05; done;; esac'


@pytest.mark.timeout(5 * PATIENCE)
@pytest.mark.parametrize("state", ["running", "halted"])
async def test_the_worker_of_a_snapshot_is_killed_in_the_middle_of_it(hosts: Hosts, state: str) -> None:
    held, go = hosts.folder / "held", hosts.folder / "go"
    write_connections(hosts, image_program=wrapped(hosts.folder, "qemu-img", HELD_SECOND.format(held=held, go=go)))
    worker = await hosts.serve("n1")
    await hosts.make_network()
    await hosts.to(DB, "create", image="u", memory=1, node="n1")
    await hosts.to(DB, "add-disk", disk="d1", size=1)
    pid = hosts.process_on("n1").find_pid()
    if state == "halted":
        await hosts.to(DB, "stop")
    else:
        os.kill(pid, signal.SIGSTOP)  # the order is given, and QEMU does not answer
    taking = await hosts.ask(DB, "snapshot", snapshot="s")
    await until(held.exists if state == "halted" else lambda: has_order_of_machine(worker.process.pid))
    await worker.kill()
    if state == "halted":
        assert sorted(tags_in_disks(hosts).values()) == [[], ["s"]]
    else:
        os.kill(pid, signal.SIGCONT)
    go.touch()
    await hosts.serve("n1")
    assert (await hosts.outcome(taking)).result == "succeeded"
    assert await snapshots(hosts) == ["s"]
    assert living(hosts.folder) == ({} if state == "halted" else {"db": 1})
    assert await hosts.to(DB, "rollback", snapshot="s") == ("HALTED" if state == "halted" else "RUNNING")
    if state == "running":
        await hosts.to(DB, "stop")
    assert tags_in_disks(hosts) == {"db": ["s"], "d1": ["s"]}
    code, said = await hosts.site.starter("verify")
    assert code == 0, said


def has_order_of_machine(pid: int) -> bool:
    """Tells whether a worker is in an order about the machine: it holds its lock."""
    links = [os.readlink(file) for file in Path(f"/proc/{pid}/fd").iterdir()]
    return any(link.endswith(f"/locks/{DB}") for link in links)
