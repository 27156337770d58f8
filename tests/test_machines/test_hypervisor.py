"""The contract of every hypervisor: what it does, what it refuses, and one effect per token.

QEMU's processes are real; they run the firmware only, and their disks are empty.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from domain.errors import Rejected, Throttled, Unavailable, UnknownOutcome
from domain.faults import Fault, FaultKind
from domain.machines.ports import ABSENT, STATE_AFTER_VERB, Hypervisor, HypervisorFacts, HypervisorOrder
from domain.paths import kind_of
from providers.machines import PROVIDER_NAME, SimulatedHypervisor
from providers.machines.qemu import QemuHypervisor
from providers.machines.state import HYPERVISOR_LEDGER
from providers.simulated import SimulatedCloud, create_tables
from store.engine import Database
from tests.test_machines.qemu import end_qemu_processes, needs_qemu, qemu_options

DB, DISK = "account:a:cloudspace:dev:machine:db", "account:a:disk:d1"
_tokens = count(1)


class Rack:
    """A hypervisor with two nodes, a network and an image."""

    def __init__(self, hypervisor: Hypervisor, database: Database) -> None:
        self.hypervisor = hypervisor
        self.database = database

    async def tell(self, verb: str, path: str, token: str = "", epoch: int = 0, **about: Any) -> HypervisorFacts:
        order = HypervisorOrder(path, kind_of(path), token or f"t{next(_tokens)}", about, epoch)
        return await self.hypervisor.perform_order(verb, order)

    async def machine(self, path: str = DB, node: str = "n1", memory: int = 4) -> HypervisorFacts:
        return await self.tell("create", path, image="u", memory=memory, node=node)

    async def fault(self, kind: FaultKind, **more: Any) -> None:
        await SimulatedCloud("aws", self.database).add_fault(Fault(kind=kind, csp=PROVIDER_NAME, **more))

    async def count_effective_orders(self, path: str) -> int:
        return (await self.database.run_transaction(partial(HYPERVISOR_LEDGER.find_object, path=path))).effects


@asynccontextmanager
async def open_rack(which: str, folder: Path) -> AsyncIterator[Rack]:
    database = Database(f"sqlite:///{folder}/cloud.db")
    database.run_transaction_blocking(create_tables)
    hypervisor: Hypervisor = SimulatedHypervisor(database)
    if which == "qemu":
        hypervisor = QemuHypervisor(qemu_options(folder / "qemu"), database)
    rack = Rack(hypervisor, database)
    await rack.tell("create", "node:n1", memory=8)
    await rack.tell("create", "node:n2", memory=4)
    await rack.tell("create", "image:u")
    await rack.tell("create", "account:a:cloudspace:dev")
    try:
        yield rack
    finally:
        database.close()
        end_qemu_processes(folder)


@pytest.fixture(params=["simulated", pytest.param("qemu", marks=needs_qemu)])
async def rack(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rack]:
    async with open_rack(request.param, tmp_path) as rack:
        yield rack


@pytest.fixture
async def simulated(tmp_path: Path) -> AsyncIterator[Rack]:
    async with open_rack("simulated", tmp_path) as rack:
        yield rack


async def test_a_machine_goes_where_it_was_wished_or_where_there_is_most_room(rack: Rack) -> None:
    assert (await rack.machine(node="n2")).node == "n2"
    assert (await rack.machine(f"{DB}2", node="", memory=1)).node == "n1"


async def test_what_a_real_one_refuses(rack: Rack) -> None:
    await rack.machine()
    await rack.tell("create", DISK)
    await rack.tell("attach", DISK, machine=DB)
    cases: list[tuple[str, str, dict[str, Any], str]] = [
        ("attach", DISK, {"machine": DB}, f"it is attached to {DB}"),
        ("create", f"{DB}2", {"image": "u", "memory": 5, "node": "n1"}, "node n1 has room for 5"),
        ("create", f"{DB}2", {"image": "u", "memory": 9}, "no enabled node has room for 9"),
        ("create", f"{DB}2", {"image": "none", "memory": 1}, "image none is not ready"),
        ("create", "account:a:cloudspace:no:machine:x", {"image": "u"}, "is not up"),
        ("migrate", DB, {"node": "n1"}, "is on n1 already"),
        ("migrate", DB, {"node": "n9"}, "there is no node n9"),
        ("delete", DB, {}, "cannot delete"),
        ("destroy", DB, {}, "cannot destroy"),
        ("decommission", "node:n1", {}, "is home to 1 machine, "),
    ]
    for verb, path, about, told in cases:
        with pytest.raises(Rejected, match=told):
            await rack.tell(verb, path, **about)
    await rack.tell("delete", "image:u")
    with pytest.raises(Rejected, match="in use by"):
        await rack.tell("destroy", "image:u")


async def test_a_machine_does_not_start_on_a_node_in_maintenance(rack: Rack) -> None:
    await rack.machine()
    await rack.tell("stop", DB)
    await rack.tell("maintain", "node:n1")
    with pytest.raises(Rejected, match="node n1 is in maintenance"):
        await rack.tell("start", DB)
    assert (await rack.tell("migrate", DB)).node == "n2"
    assert (await rack.tell("start", DB)).state == "running"


async def test_stopped_machines_use_no_memory(rack: Rack) -> None:
    await rack.machine(memory=8)
    await rack.tell("stop", DB)
    await rack.machine(f"{DB}2", memory=8)
    with pytest.raises(Rejected, match="has room for 8"):
        await rack.tell("start", DB)


async def test_one_token_has_one_effect_even_after_other_orders(rack: Rack) -> None:
    await rack.machine()
    before = await rack.count_effective_orders(DB)
    for _ in range(3):
        await rack.tell("reboot", DB, token="once")
    assert await rack.count_effective_orders(DB) == before + 1
    await rack.tell("stop", DB)
    assert (await rack.tell("reboot", DB, token="once")).state == "stopped"  # late and repeated: nothing happens


@pytest.mark.parametrize(
    "kind", [kind for kind in STATE_AFTER_VERB if kind in ("machine", "disk", "cloudspace", "image", "node")]
)
async def test_an_order_that_no_move_allows_is_refused_and_changes_nothing(rack: Rack, kind: str) -> None:
    path = {"machine": DB, "disk": DISK, "cloudspace": "account:a:cloudspace:x", "image": "image:x", "node": "node:x"}
    for verb, moves in STATE_AFTER_VERB[kind].items():
        if ABSENT not in moves:
            with pytest.raises(Rejected, match=f"cannot {verb} .*: it is absent"):
                await rack.tell(verb, path[kind])
    assert (await rack.hypervisor.describe_object(path[kind])).state == ABSENT


@pytest.mark.parametrize(
    ("fault", "error", "done"),
    [
        (FaultKind.FAIL, Rejected, False),
        (FaultKind.THROTTLE, Throttled, False),
        (FaultKind.UNAVAILABLE, Unavailable, False),
        (FaultKind.LOSE_ANSWER, UnknownOutcome, True),
    ],
)
async def test_the_fault_script_holds_here_too(
    simulated: Rack, fault: FaultKind, error: type[Exception], done: bool
) -> None:
    await simulated.machine()
    await simulated.fault(fault, vm=DB, verb="stop", times=1)
    with pytest.raises(error):
        await simulated.tell("stop", DB, token="stop")
    assert ((await simulated.hypervisor.describe_object(DB)).state == "stopped") is done
    assert (await simulated.tell("stop", DB, token="stop")).state == "stopped"


async def test_what_is_there_is_listed_by_path_and_by_node(rack: Rack) -> None:
    await rack.machine()
    assert [facts.path for facts in await rack.hypervisor.list_existing_objects("account:a", "")] == [
        "account:a:cloudspace:dev",
        DB,
    ]
    assert [facts.path for facts in await rack.hypervisor.list_machines_on("n1")] == [DB]
    await rack.tell("stop", DB)
    await rack.tell("delete", DB)
    assert await rack.hypervisor.list_machines_on("n1") == []  # in the bin it is at home nowhere
