"""Quotas: counted as objects come and go, decided in begin, and not overrun by two begins at once."""

from __future__ import annotations

from functools import partial

import pytest
import sqlalchemy as sa
from pydantic import ValidationError

from domain.errors import Category
from domain.model import Admission, BeginRequest
from domain.quotafile import Quotas
from domain.quotas import Quota, QuotaQuery, QuotaUse
from store import begin
from store.mci.tables import connection_uses
from store.schema import tenant_rates
from tests.test_store.driver import EVERYBODY, FRONT_1, HOOKS, NS, WEB, StoreDriver, claim, group
from tests.test_store.test_races import MANY, granted, overtaken, together

OTHER = f"{NS}:mci:other"


def limits(**quota: int) -> Quotas:
    return Quotas(tenants={NS: Quota(**quota)})


def allow(driver: StoreDriver, **quota: int) -> None:
    driver.inventory.current_quotas = lambda: limits(**quota)


async def use(driver: StoreDriver, tenant: str = NS) -> QuotaUse:
    return (await driver.inventory.read_quotas(QuotaQuery(tenant=tenant))).tenants[0].used


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """No request's turn passes while the test runs."""
    monkeypatch.setattr("store.quotas.read_database_micros", lambda _connection: 1_800_000_000_000_000)


def counts(used: QuotaUse) -> tuple[int, int, int]:
    return used.objects, used.vms, used.open_actions


def spec(size: int, **place: str) -> dict[str, object]:
    return {"subGroups": [group(size=size, **place)]}


async def test_a_tenant_is_counted_while_its_objects_come_and_go(driver: StoreDriver) -> None:
    admission = await driver.begin(WEB, "create", spec=spec(3))
    assert admission.grant
    assert counts(await use(driver)) == (4, 3, 1), "VMs count before their records are there"
    grant = await driver.born(admission.grant)
    assert counts(await use(driver)) == (4, 3, 1), "and once"
    await driver.land(grant, "Running")
    await driver.finish(grant)
    assert counts(await use(driver)) == (4, 3, 0)
    gone = await driver.grant(WEB, "delete")
    await driver.land(gone, "None")
    await driver.finish(gone)
    assert counts(await use(driver)) == (0, 0, 0)


async def test_what_did_not_come_into_being_is_not_counted(driver: StoreDriver) -> None:
    assert (await driver.begin(WEB, "create", run="r1", spec=spec(3))).grant
    await driver.inventory.abandon_run(WEB, "r1", driver.now(), "gone")
    assert (await use(driver)).vms == 0


@pytest.mark.parametrize(
    ("quota", "told"),
    [
        ({"vms": 4}, f"{NS} has 2 of 4 VMs, and this needs 3 more"),
        ({"objects": 6}, f"{NS} has 3 of 6 objects, and this needs 4 more"),
    ],
    ids=["VMs", "objects"],
)
async def test_what_goes_beyond_a_limit_is_refused_and_leaves_nothing(
    driver: StoreDriver, quota: dict[str, int], told: str
) -> None:
    await driver.make()
    allow(driver, **quota)
    before = await driver.dump()
    refusal = await driver.refusal(OTHER, "create", spec=spec(3))
    assert (refusal.category, refusal.message) == (Category.QUOTA, told)
    assert "RATCHET_QUOTAS_FILE" in refusal.hint
    assert await driver.dump() == before
    assert (await driver.begin(OTHER, "create", spec=spec(2))).grant, "what fits is admitted"


async def test_more_vms_of_a_subgroup_are_within_the_quota_too(driver: StoreDriver) -> None:
    await driver.make()
    allow(driver, vms=3)
    refusal = await driver.refusal(WEB, "scale-out", spec={"subGroup": "front", "count": 2})
    assert "2 of 3 VMs" in refusal.message
    assert (await driver.begin(WEB, "scale-out", spec={"subGroup": "front", "count": 1})).grant


async def test_a_refused_creation_uses_no_place(driver: StoreDriver) -> None:
    allow(driver, vms=1)
    await driver.refusal(WEB, "create", spec=spec(2))
    uses = sa.select(connection_uses)
    assert not await driver.database.run_transaction(lambda connection: connection.execute(uses).all())


async def test_open_actions_are_limited_and_free_when_they_end(driver: StoreDriver) -> None:
    await driver.make()
    await driver.make(OTHER)
    allow(driver, open_actions=1)
    first = await driver.grant(WEB, "suspend")
    refusal = await driver.refusal(OTHER, "suspend")
    assert refusal.message == f"{NS} has 1 of 1 open actions, and this needs 1 more"
    await driver.land(first, "Suspended")
    await driver.finish(first)
    assert (await driver.begin(OTHER, "suspend")).grant


@pytest.mark.usefixtures("frozen")
async def test_a_minute_has_so_many_requests_and_says_when_the_next_one_is_free(driver: StoreDriver) -> None:
    await driver.make()
    allow(driver, requests_per_minute=2)
    assert (await driver.begin(FRONT_1, "suspend", run="r1")).grant
    assert (await driver.begin(WEB, "nonsense")).refusal, "not a request of anybody's: it has no action"
    assert (await driver.refusal(FRONT_1, "resume")).category is Category.NOT_ALLOWED, "refused, and counted"
    refusal = await driver.refusal(FRONT_1, "suspend")
    assert (refusal.category, refusal.retry_after) == (Category.QUOTA, 30)
    assert (await driver.begin(FRONT_1, "suspend", run="r1")).grant, "the same run again is no new request"
    assert (await use(driver)).requests == 2
    passed = sa.update(tenant_rates).values(until=tenant_rates.c.until - 31_000_000)
    await driver.database.run_transaction(lambda connection: connection.execute(passed))
    assert (await driver.refusal(FRONT_1, "resume")).category is Category.NOT_ALLOWED


@pytest.mark.usefixtures("frozen")
async def test_a_run_that_asks_again_is_counted_once(driver: StoreDriver) -> None:
    """Its worker died before it had the refusal, or what was in its way is gone."""
    await driver.make()
    allow(driver, requests_per_minute=2)
    for _ in range(4):
        refusal = (await driver.inventory.begin_action(claim(FRONT_1, "resume", run="r1"))).refusal
        assert refusal
        assert refusal.category is Category.NOT_ALLOWED
    assert (await use(driver)).requests == 1


@pytest.mark.usefixtures("frozen")
async def test_a_run_that_was_refused_for_its_rate_is_counted_when_it_asks_again(driver: StoreDriver) -> None:
    await driver.make()
    allow(driver, requests_per_minute=1)
    assert (await driver.refusal(FRONT_1, "resume")).category is Category.NOT_ALLOWED
    for _ in range(2):
        refusal = (await driver.inventory.begin_action(claim(FRONT_1, "resume", run="r1"))).refusal
        assert refusal
        assert refusal.retry_after, "the rate is in its way again: it was not let through uncounted"


async def test_another_tenant_has_its_own_limits(driver: StoreDriver) -> None:
    allow(driver, vms=0, open_actions=0)
    assert (await driver.begin("ns:others:mci:web", "create", spec=spec(2))).grant


async def test_a_dry_run_is_refused_as_well_and_is_no_request(driver: StoreDriver) -> None:
    allow(driver, vms=1, requests_per_minute=1)
    checked = await driver.check(WEB, "create", spec=spec(2))
    assert checked.refusal
    assert checked.refusal.category is Category.QUOTA
    assert (await use(driver)).requests == 0


async def test_tenants_are_listed_page_by_page(driver: StoreDriver) -> None:
    for number in range(5):
        await driver.make(f"ns:n{number}:mci:web")
    first = await driver.inventory.read_quotas(QuotaQuery(limit=3))
    rest = await driver.inventory.read_quotas(QuotaQuery(limit=3, after=first.after))
    assert [row.used.tenant for row in (*first.tenants, *rest.tenants)] == [f"ns:n{number}" for number in range(5)]
    assert rest.after == ""


def beginning(asked: BeginRequest, quotas: Quotas) -> partial[Admission]:
    return partial(begin.begin_action, hooks=HOOKS, access=EVERYBODY, claim=asked, quotas=quotas)


async def test_of_two_begins_at_the_last_free_place_the_later_one_is_refused(
    pair: tuple[StoreDriver, StoreDriver],
) -> None:
    """The first one has decided and not committed; the second one, at another place, waits for it."""
    last = limits(vms=2)
    admission = await overtaken(
        pair,
        beginning(claim(WEB, "create", run="r1", spec=spec(2)), last),
        beginning(claim(OTHER, "create", run="r2", spec=spec(1, region="eu-west-1")), last),
    )
    assert admission.refusal
    assert admission.refusal.message == f"{NS} has 2 of 2 VMs, and this needs 1 more"


async def test_of_fifty_begins_as_many_are_admitted_as_there_is_room_for(
    driver: StoreDriver, rival: StoreDriver
) -> None:
    room = limits(vms=7, open_actions=10)
    asked = [claim(f"{NS}:mci:m{number}", "create", spec=spec(1, region=f"r-{number}")) for number in range(MANY)]
    admissions = together([driver, rival], [beginning(each, room) for each in asked])
    assert len(granted(admissions)) == 7
    assert (await use(driver)).vms == 7


def test_a_limit_is_the_tenants_own_or_its_sorts_or_everybodys() -> None:
    quotas = Quotas.model_validate(
        {"tenants": {"*": {"vms": 1, "objects": 1}, "ns:*": {"vms": 2, "open_actions": 2}, "ns:big": {"vms": 3}}}
    )
    assert quotas.quota_of("ns:big") == Quota(vms=3, open_actions=2, objects=1)
    assert quotas.quota_of("ns:small") == Quota(vms=2, open_actions=2, objects=1)
    assert quotas.quota_of("org:acme") == Quota(vms=1, objects=1)
    assert quotas.quota_of("installation") is None
    assert Quotas(tenants={"ns:big": Quota(vms=3)}).quota_of("ns:small") is None


@pytest.mark.parametrize("name", ["nss:a", "node:cpu-1", "ns", "ns:a:mci:web", "ns:a b"])
def test_a_tenant_that_nobody_can_be_is_refused(name: str) -> None:
    with pytest.raises(ValidationError):
        Quotas.model_validate({"tenants": {name: {"vms": 1}}})
