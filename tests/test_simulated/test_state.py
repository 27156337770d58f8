"""The simulated cloud's own records: tokens, effects, quotas, several processes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest
import sqlalchemy as sa

from domain.errors import NoCapacity, Rejected
from domain.ports import VmFacts, VmOrder, VmState
from providers.services import ledger
from providers.simulated import SimulatedCloud, create_tables
from store.engine import Database
from tests.test_clouds.kit import PARENT, REGION, create, do, good, on, orders


@pytest.mark.parametrize("verb", ["suspend", "reboot", "terminate"])
async def test_a_repeated_order_is_many_calls_but_one_effect(aws: SimulatedCloud, verb: str) -> None:
    [vm] = await create(aws, "a")
    for _ in range(3):
        good([await do(aws, verb, on(vm, "once"))])
    [record] = await aws.list_all_vms()
    assert (record.calls, record.effects) == (1 + 3, 1 + 1)
    good([await do(aws, "terminate", on(vm, "other"))])
    assert (await aws.list_all_vms())[0].state == VmState.TERMINATED


async def test_ids_and_addresses_follow_from_the_token(aws: SimulatedCloud) -> None:
    [vm] = await create(aws, "a")
    assert vm.cloud_id.startswith("aws-i-")
    assert vm.address.startswith("10.")
    [record] = await aws.list_all_vms()
    assert (record.csp, record.region, record.token, record.path) == ("aws", REGION, "a/create", vm.path)


async def test_a_token_used_for_another_vm_is_rejected(aws: SimulatedCloud) -> None:
    await create(aws, "a")
    assert isinstance(await do(aws, "create", VmOrder(f"{PARENT}:vm:b", "a/create")), Rejected)
    assert isinstance(await do(aws, "create", orders("a")[0], region="us-1"), Rejected)


async def test_clouds_in_one_database_do_not_see_each_other(aws: SimulatedCloud, database: Database) -> None:
    gcp = SimulatedCloud("gcp", database)
    [vm] = await create(aws, "a")
    assert await gcp.describe_vms(REGION, [on(vm, "")]) == [None]
    assert await gcp.list_tagged_vms(REGION, PARENT) == []
    assert isinstance(await do(gcp, "terminate", on(vm, "now")), Rejected)
    [twin] = await create(gcp, "a")
    assert twin.cloud_id != vm.cloud_id


async def test_the_cloud_outlives_the_process(aws: SimulatedCloud, other: Database) -> None:
    [vm] = await create(aws, "a")
    assert await SimulatedCloud("aws", other).describe_vms(REGION, [on(vm, "")]) == [vm]


async def test_a_call_with_more_vms_than_the_cloud_takes_is_rejected(database: Database) -> None:
    answers = await SimulatedCloud("aws", database, bulk=2).perform_orders("create", REGION, orders("a", "b", "c"))
    assert [type(answer) for answer in answers] == [Rejected] * 3


async def test_creation_stops_at_the_quota_of_a_region(aws: SimulatedCloud) -> None:
    await aws.set_quota(REGION, 3)
    names = orders("a", "b", "c", "d", "e")
    answers = await aws.perform_orders("create", REGION, names)
    assert [type(answer) for answer in answers] == [VmFacts] * 3 + [NoCapacity] * 2
    assert "quota" in str(answers[-1])
    assert isinstance(await do(aws, "create", names[3], region="us-1"), VmFacts), "other regions are free"
    good([await do(aws, "terminate", on(good(answers[:1]), "now"))])
    good([await do(aws, "create", names[4])])
    good([await do(aws, "create", names[4])])  # the same VM needs no more room
    await aws.set_quota(REGION, None)
    await create(aws, "f", "g")


async def test_two_processes_together_keep_to_the_quota_and_to_one_vm_per_token(
    aws: SimulatedCloud, other: Database
) -> None:
    await aws.set_quota(REGION, 100)
    twin = SimulatedCloud("aws", other)
    answers = []
    for turn in range(10):  # the first one also opens connections: the two may miss each other
        shared = orders(*(f"t{turn}-{number}" for number in range(10)))
        own = [(cloud, order) for name, cloud in (("x", aws), ("y", twin)) for order in orders(f"{name}{turn}")]
        calls = [(cloud, order) for cloud in (aws, twin) for order in shared] + own
        answers += await asyncio.gather(*(do(cloud, "create", order) for cloud, order in calls))
    assert {type(answer) for answer in answers} == {VmFacts, NoCapacity}
    books = await aws.list_all_vms()
    assert len({vm.token for vm in books}) == len(books) == 100
    assert {vm.effects for vm in books} == {1}


@pytest.mark.parametrize("make_tables", [create_tables, ledger.create_tables], ids=["clouds", "services"])
def test_several_processes_may_make_the_tables_at_once(url: str, make_tables: Callable[[sa.Connection], None]) -> None:
    first = Database(url)
    first.run_transaction_blocking(
        lambda connection: None
    )  # a new SQLite file does not bear being opened by several at once
    first.close()
    errors: list[BaseException] = []
    start = threading.Barrier(4)

    def make() -> None:
        database = Database(url)
        try:
            start.wait()
            database.run_transaction_blocking(make_tables)
        except BaseException as error:
            errors.append(error)
        finally:
            database.close()

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
