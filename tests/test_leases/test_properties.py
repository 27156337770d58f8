"""Property expressions are evaluated by both databases alike, and affinity decides which hosts instances share."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from domain.leases.properties import condition_as_list, parse_condition
from domain.leases.specs import LeaseSpec
from tests.cases import every_case
from tests.test_leases.bookings import ask, book, change, finish, host, lease, refused, see
from tests.test_store.driver import StoreDriver

INSTANCES = {"resource_type": "virtual:instance", "vcpus": 2, "memory_mb": 1000}


EXPRESSIONS: list[tuple[Any, bool]] = [
    ({}, True),
    ({"gpu": "a100"}, True),
    ({"gpu": "h100"}, False),
    ({"vcpus": 32}, True),
    ({"vcpus": ">=32"}, True),
    ({"vcpus": ">32"}, False),
    ({"vcpus": "<= 32"}, True),
    ({"vcpus": ">=9"}, True),  # as numbers: as text, 32 is less than 9
    ({"gpu": "!=h100"}, True),
    ({"gpu": ">a"}, True),  # as text
    ({"gpu": "<5"}, False),  # as text: one of the two is no number
    ({"ssd": "True"}, True),
    ({"ssd": True, "rack": "7"}, True),
    ({"rack": 7}, True),
    ({"rack": 7.0}, True),
    ({"colour": "red"}, False),
    ({"colour": "!=red"}, False),
    ({"name": "h1"}, True),
    (["==", "$gpu", "a100"], True),
    (["and", [">=", "$vcpus", "9"], ["<", "$vcpus", "100"]], True),  # one property twice
    (["and", [">=", "$vcpus", "9"], ["<", "$vcpus", "32"]], False),
    (["or", ["==", "$gpu", "h100"], ["==", "$rack", "7"]], True),
    (["or", ["==", "$gpu", "h100"], ["==", "$colour", "red"]], False),
    (["and", ["or", ["==", "$gpu", "x"], ["==", "$ssd", "True"]], ["!=", "$rack", 8]], True),
    (["==", "$gpu' OR 1=1 --", "a100"], False),
]


async def test_an_expression_chooses_the_hosts(driver: StoreDriver) -> None:
    await host(driver, "h1", vcpus=32, labels="gpu=a100,rack=7", properties={"ssd": True})
    for number, (wanted, fits) in enumerate(EXPRESSIONS, 1):
        reservation = {"resource_type": "physical:host", "resource_properties": wanted}
        admission = await ask(driver, lease(f"l{number}"), number, number + 1, reservations=[reservation])
        assert bool(admission.grant) is fits, (wanted, admission.refusal)
        assert fits or "the pool has 0 working hosts" in str(admission.refusal)


@every_case(
    ("wanted", "reason"),
    [
        (["=", "$gpu", "x"], "an expression begins with and, or, >=, <=, !=, ==, >, <, not with '='"),
        (["=="], "a comparison has three words"),
        (["==", "gpu", "x"], "is written like '$gpu', not 'gpu'"),
        (["==", "$gpu", ["x"]], "is a text or a number"),
        (["and"], "'and' must be followed by expressions"),
        (["or", "x"], "'or' must be followed by expressions"),
        (["and", *[["==", "$a", 1]] * 51], "51 comparisons: the limit is 50"),
    ],
)
def test_a_bad_expression_is_refused_with_the_reason(wanted: list[Any], reason: str) -> None:
    spec = {"end": "+1h", "reservations": [{"resource_type": "physical:host", "resource_properties": wanted}]}
    with pytest.raises(ValidationError) as error:
        LeaseSpec.model_validate(spec)
    assert reason in str(error.value)


def test_an_expression_that_is_too_deep_is_refused() -> None:
    deep: list[Any] = ["==", "$a", 1]
    for _ in range(10):
        deep = ["and", deep]
    with pytest.raises(ValueError, match="nested more than 8 times"):
        parse_condition(deep)


def test_both_notations_mean_the_same() -> None:
    one, two = parse_condition({"gpu": "a100", "vcpus": ">= 9"}), ["and", ["==", "$gpu", "a100"], [">=", "$vcpus", "9"]]
    assert parse_condition(two) == one
    assert condition_as_list(one) == two
    assert str(parse_condition(["or", two, ["<", "$rack", 3]])) == "(gpu == a100 and vcpus >= 9) or rack < 3"


async def test_a_removed_host_leaves_no_properties(driver: StoreDriver) -> None:
    await host(driver, "h1", labels="gpu=a100")
    await finish(driver, await driver.grant("pool:main:host:h1", "remove"))
    await host(driver, "h1")
    wanted = {"resource_type": "physical:host", "resource_properties": {"gpu": "a100"}}
    await refused(driver, "a", 1, 2, reservations=[wanted])


async def test_affinity_puts_instances_on_one_host_or_on_many(driver: StoreDriver) -> None:
    await host(driver, "small", vcpus=4)
    await host(driver, "tall", vcpus=8)
    together = INSTANCES | {"min": 4, "affinity": True}
    assert (await book(driver, "a", 1, 2, reservations=[together])).reservations[0].hosts == {"tall": 4}
    apart = INSTANCES | {"min": 2, "affinity": False}
    assert (await book(driver, "b", 3, 4, reservations=[apart])).reservations[0].hosts == {"small": 1, "tall": 1}
    refusal = await refused(driver, "c", 5, 6, reservations=[apart | {"min": 3}])
    assert "room for 2" in refusal.message
    assert "each on another host" in refusal.message
    refusal = await refused(driver, "d", 5, 6, reservations=[together | {"min": 5}])
    assert "room for 4" in refusal.message
    anywhere = INSTANCES | {"min": 5}
    assert (await book(driver, "e", 7, 8, reservations=[anywhere])).reservations[0].hosts == {"small": 2, "tall": 3}


async def test_affinity_holds_when_a_host_fails_and_when_a_lease_grows(driver: StoreDriver) -> None:
    for name in ("h1", "h2", "h3"):
        await host(driver, name, vcpus=8)
    apart = INSTANCES | {"min": 2, "affinity": False}
    await book(driver, "a", 1, 2, reservations=[apart])
    await finish(driver, await driver.grant("pool:main:host:h1", "fail"))
    assert (await see(driver, "a")).reservations[0].hosts == {"h2": 1, "h3": 1}
    await finish(driver, await driver.grant("pool:main:host:h2", "fail"))
    seen = (await see(driver, "a")).reservations[0]
    assert (seen.hosts, seen.missing_resources) == ({"h3": 1}, True)
    await finish(driver, await driver.grant("pool:main:host:h1", "recover"))
    seen = (await see(driver, "a")).reservations[0]
    assert (seen.hosts, seen.missing_resources) == ({"h1": 1, "h3": 1}, False)
    together = INSTANCES | {"min": 2, "affinity": True}
    await book(driver, "b", 1, 2, reservations=[together])
    assert await change(driver, "b", reservations=[{"min": 3}]) is None
    assert list((await see(driver, "b")).reservations[0].hosts.values()) == [3]


async def test_an_update_of_a_host_changes_its_properties_and_nothing_else(driver: StoreDriver) -> None:
    await host(driver, "h1", labels="gpu=a100,rack=7", vcpus=8)
    update = await driver.grant("pool:main:host:h1", "update", spec={"properties": {"gpu": "h100", "ssd": True}})
    await finish(driver, update)
    view = await driver.inventory.read_object("pool:main:host:h1")
    assert (view.status, view.spec["vcpus"]) == ("UP", 8)
    for number, (wanted, fits) in enumerate([({"gpu": "a100"}, False), ({"gpu": "h100", "rack": 7}, True)]):
        reservation = {"resource_type": "physical:host", "resource_properties": wanted}
        admission = await ask(driver, lease(f"l{number}"), 1, 2, reservations=[reservation])
        assert bool(admission.grant) is fits, admission
    await finish(driver, await driver.grant("pool:main:host:h1", "fail"))
    await finish(driver, await driver.grant("pool:main:host:h1", "update", spec={"labels": "rack=8"}))
    await refused(driver, "later", 5, 6)  # it is still DOWN
    refusal = await driver.refusal("pool:main:host:h1", "update", spec={"properties": {f"p{n}": n for n in range(50)}})
    assert "a host with 53 properties: the limit is 50" in refusal.message
