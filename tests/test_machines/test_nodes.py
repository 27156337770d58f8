"""Nodes that several workers serve: each process is started by a worker of its node; a machine moves between two."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from domain.errors import Refused, Unavailable
from domain.nodecalls import NodeAnswer, NodeTask
from providers.machines.qemu.node import claim_node
from providers.machines.qemu.orders import NodeOrders
from tests.patience import PATIENCE
from tests.test_machines.hosts import Hosts, until, write_connections
from tests.test_machines.qemu import needs_qemu, qemu_options
from tests.test_machines.test_hypervisor import DB
from tests.test_machines.test_qemu_chaos import living, wrapped

pytestmark = needs_qemu


def count_sockets(pid: int) -> int:
    links = [os.readlink(file) for file in Path(f"/proc/{pid}/fd").iterdir()]
    return len([link for link in links if link.startswith("socket:")])


async def test_a_machine_moves_between_nodes_of_two_workers(hosts: Hosts) -> None:
    write_connections(hosts, address="127.0.0.1")
    await hosts.serve("n1")
    await hosts.serve("n2", "--queues", "node-n2")
    await hosts.make_network()
    assert await hosts.to(DB, "create", image="u", memory=1, node="n2") == "RUNNING"
    assert hosts.processes() == {"n2": "n2"}
    await hosts.to(DB, "add-disk", disk="d1", size=1)
    await hosts.to(DB, "migrate", node="n1")
    assert hosts.processes() == {"n1": "n1"}
    await hosts.to(DB, "pause")
    await hosts.to(DB, "migrate", node="n2")
    assert hosts.processes() == {"n2": "n2"}
    await hosts.to(DB, "resume")
    await hosts.to(DB, "detach-disk", disk="d1")
    assert not list(hosts.folder.glob("qemu/ledger.db"))  # it is in the database that both share
    code, said = await hosts.site.starter("verify")
    assert code == 0, said
    await hosts.to(DB, "destroy")
    assert living(hosts.folder) == {}
    assert not list(hosts.folder.glob("qemu/orders/*"))


# The process that receives is made to wait, so that a worker can be killed at a known moment of the migration.
HELD_START = 'case "$*" in *-incoming*) touch {held}; while [ ! -e {go} ]; do sleep 0.05; done;; esac'
# Only the first one: if the worker dies before it has told QEMU to migrate, the machine is sent to a second one.
HELD_STREAM = (
    'case "$*" in *-incoming*) $real "$@"; [ -e {held} ] || kill -STOP $(cat n2.pid); touch {held}; exit 0;; esac'
)


# For a minute the server gives tasks to the polls of a killed worker too; a migration has several tasks in a row.
@pytest.mark.timeout(5 * PATIENCE)
@pytest.mark.parametrize(("node", "script"), [("n2", HELD_START), ("n1", HELD_STREAM)], ids=["receiving", "sending"])
async def test_the_worker_of_a_node_is_killed_in_a_migration(hosts: Hosts, node: str, script: str) -> None:
    held, go = hosts.folder / "held", hosts.folder / "go"
    script = script.format(held=held, go=go)
    write_connections(hosts, program=wrapped(hosts.folder, "qemu-system-x86_64", script))
    await hosts.serve("n1", "--queues", "actions,hypervisor,cloud-aws")  # it serves no node
    workers = {each: await hosts.serve(each, "--queues", f"node-{each}") for each in ("n1", "n2")}
    await hosts.make_network()
    await hosts.to(DB, "create", image="u", memory=1, node="n1")
    source = hosts.process_on("n1").find_pid()
    sockets = count_sockets(source)
    moving = await hosts.ask(DB, "migrate", node="n2")
    await until(held.exists)
    if node == "n1":  # until its worker has given QEMU the connection, beside the one for commands
        await until(lambda: count_sockets(source) >= sockets + 2)
    await workers[node].kill()
    go.touch()
    if node == "n1":
        os.kill(hosts.process_on("n2").find_pid(), signal.SIGCONT)
    await hosts.serve(node, "--queues", f"node-{node}")
    assert (await hosts.outcome(moving)).result == "succeeded"
    await until(lambda: hosts.processes() == {"n2": "n2"})
    assert (await hosts.site.inventory.read_object(DB)).info["node"] == "n2"
    assert living(hosts.folder) == {"db": 1}
    await hosts.to(DB, "destroy")
    assert living(hosts.folder) == {}


async def test_orders_for_a_node_that_nobody_serves_wait_and_the_others_go_on(hosts: Hosts) -> None:
    await hosts.serve("n1")
    await hosts.make_network()
    waiting = await hosts.ask(DB, "create", image="u", memory=1, node="n2")
    assert await hosts.to(f"{DB}2", "create", image="u", memory=1, node="n1") == "RUNNING"
    assert living(hosts.folder) == {"db2": 1}
    code, said = await hosts.site.starter("doctor")
    assert code != 0
    assert "no worker serves the node n2" in said, said
    assert "starter worker --node n2" in said
    await hosts.serve("n2", "--queues", "node-n2")
    assert (await hosts.outcome(waiting)).status == "RUNNING"
    assert hosts.processes() == {"n2": "n2"}


async def test_a_node_is_one_host_and_is_in_the_file(hosts: Hosts) -> None:
    claim = hosts.folder / "qemu" / "nodes" / "n1"
    claim.parent.mkdir(parents=True)
    claim.write_text("another-host")
    refused = await hosts.site.start("--node", "n1", "--queues", "node-n1")
    await refused.until_said("the node n1 is the host another-host")
    assert await refused.process.wait() == 8
    refused = await hosts.site.start("--node", "n9")
    await refused.until_said("has no node n9")
    assert await refused.process.wait() == 2
    claim_node(hosts.folder / "qemu", "n2")
    claim_node(hosts.folder / "qemu", "n2")  # a second worker of the same host
    (claim.parent / "n2").write_text("another-host")
    with pytest.raises(Refused, match="the node n2 is the host another-host"):
        claim_node(hosts.folder / "qemu", "n2")


async def test_an_order_is_carried_out_once_and_only_with_its_ticket(tmp_path: Path) -> None:
    options, given = qemu_options(tmp_path / "qemu"), list[NodeTask]()
    node = NodeOrders(options, lambda name: True, lambda task: pytest.fail("it is here"))

    async def call(task: NodeTask) -> NodeAnswer:
        given.append(task)
        for forged in ({"ticket": "0" * 32}, {"node": "n1"}, {"order": f"../orders/{task.order}"}, {"order": "x"}):
            assert (await node.perform_task(task.model_copy(update=forged))).error_type == "Unavailable"
        answer = await node.perform_task(task)
        assert (await node.perform_task(task)).error_type == "Unavailable"
        return answer

    orders = NodeOrders(options, lambda name: False, call)
    assert await orders.give("n2", "look", DB) == ""
    assert await orders.give("n2", "list", machines=[DB]) == []
    with pytest.raises(Unavailable, match="does not answer"):
        await orders.give("n2", "execute", DB, commands=["cont"])
    assert [task.node for task in given] == ["n2"] * 3
    assert not list((options.folder / "orders").iterdir())
