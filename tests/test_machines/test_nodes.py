"""Nodes that several workers serve: each process is started by a worker of its node; a machine moves between two."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from client.actions import Ticket
from domain.errors import Refused, Unavailable
from domain.model import Outcome, Request
from domain.nodecalls import NodeAnswer, NodeTask
from providers.machines.qemu import QemuOptions
from providers.machines.qemu.node import claim_node
from providers.machines.qemu.orders import NodeOrders
from providers.machines.qemu.process import QemuProcess
from tests.patience import PATIENCE
from tests.test_machines.qemu import end_qemu_processes, needs_qemu, qemu_options
from tests.test_machines.test_hypervisor import DB
from tests.test_machines.test_qemu_chaos import living, wrapped
from tests.test_platform.forkserver import ForkServer
from tests.test_platform.site import Site, Worker, open_postgres_site

pytestmark = needs_qemu
SPACE = "account:a:cloudspace:dev"


@dataclass
class Hosts:
    """A site whose nodes n1 and n2 are served by two workers; `host` is in the environment of what they start."""

    site: Site
    folder: Path
    options: QemuOptions

    async def serve(self, node: str, *words: str) -> Worker:
        started = await self.site.start("--node", node, *words, HOST_OF_TEST=node)
        await started.until_said('"serving"')
        return started

    async def ask(self, path: str, action: str, **spec: Any) -> Ticket:
        ticket = await self.site.asking.request_action(
            Request(path=path, action=action, spec=spec or None, requested_by="tester")
        )
        assert ticket.admission.refusal is None, ticket.admission.refusal
        return ticket

    async def outcome(self, ticket: Ticket) -> Outcome:
        return await self.site.asking.wait_for_outcome(ticket.path, ticket.run)

    async def to(self, path: str, action: str, **spec: Any) -> str:
        outcome = await self.outcome(await self.ask(path, action, **spec))
        assert outcome.result == "succeeded", outcome
        return outcome.status

    async def make_network(self) -> None:
        for node in ("n1", "n2"):
            await self.to(f"node:{node}", "create", memory=4)
        for path in ("image:u", "account:a", SPACE):
            await self.to(path, "create")

    def processes(self) -> dict[str, str]:
        """The living processes of the machine: node -> the host whose worker has started it."""
        found = {}
        for node in self.options.nodes:
            if pid := self.process_on(node).find_pid():
                words = Path(f"/proc/{pid}/environ").read_text().split("\0")
                found[node] = next(word for word in words if word.startswith("HOST_OF_TEST")).partition("=")[2]
        return found

    def process_on(self, node: str) -> QemuProcess:
        return QemuProcess(self.options, self.options.folder_of_object(DB), node)


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not is_so():
            await asyncio.sleep(0.02)


def count_sockets(pid: int) -> int:
    links = [os.readlink(file) for file in Path(f"/proc/{pid}/fd").iterdir()]
    return len([link for link in links if link.startswith("socket:")])


@pytest.fixture
async def hosts(tmp_path: Path, postgres_url: str, forkserver: ForkServer) -> AsyncIterator[Hosts]:
    async with open_postgres_site(tmp_path / "home", postgres_url, forkserver) as site:
        ours = Hosts(site, tmp_path, qemu_options(tmp_path / "qemu"))
        site.environment["RATCHET_CALL_TIMEOUT"] = "60"
        write_connections(ours)
        try:
            yield ours
        finally:
            end_qemu_processes(tmp_path)


def write_connections(hosts: Hosts, address: str = "", **more: str) -> None:
    told = hosts.options.model_copy(update={"nodes": {"n1": address, "n2": address}, **more}).model_dump(mode="json")
    file = hosts.folder / "connections.yaml"
    file.write_text(yaml.safe_dump({"hypervisor": told}))
    hosts.site.environment["RATCHET_CONNECTIONS"] = str(file)


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
HELD_STREAM = 'case "$*" in *-incoming*) $real "$@"; kill -STOP $(cat n2.pid); touch {held}; exit 0;; esac'


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
