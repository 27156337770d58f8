"""Leases act on behalf of whoever made them: their rights are judged when a lease is made, and again when it is due."""

from __future__ import annotations

from typing import Any

from domain.errors import Category
from domain.model import ActionResult, Request
from tests.rights import WHY, without_right
from tests.test_leases.tenant import HOUR, Tenant
from tests.user import spec


def mci_of(tenant: Tenant) -> str:
    return f"ns:{tenant.name}:mci:web"


def reserved(tenant: Tenant, on_end: str = "delete") -> list[dict[str, Any]]:
    return [{"resource_type": "mci", "mci": mci_of(tenant), "spec": spec(1, ("aws",)), "on_end": on_end}]


async def test_a_lease_says_for_whom_the_clock_starts_it(tenant: Tenant) -> None:
    await tenant.add_hosts("h1")
    await tenant.create()
    assert (await tenant.see()).requested_by == "tester"
    await tenant.forward(1.5 * HOUR)
    await tenant.until_status("ACTIVE")
    started = next(line for line in await tenant.history(tenant.lease()) if line.action == "start")
    assert (started.requested_by, started.on_behalf_of) == ("clock", "tester")


async def test_a_lease_whose_maker_may_have_none_any_more_does_not_start(tenant: Tenant) -> None:
    await tenant.add_hosts("h1")
    await tenant.create()
    with without_right(tenant.service, "create", f"project:{tenant.name}"):
        await tenant.forward(1.5 * HOUR)
        await tenant.until_status("ERROR")
        assert await tenant.statuses() == ("ERROR", ["error"], ["ERROR", "UNDONE", "UNDONE"])
        last = (await tenant.history(tenant.lease()))[-1]
        why = f"tester may not create {tenant.lease()}: a denial forbids it: {WHY}"
        assert (last.action, last.to, last.message) == ("start", "ERROR", f"failed: {why}")
        assert (await tenant.see()).reservations[0].error == why
        assert await tenant.held() == {}
        await tenant.forward(2 * HOUR)  # its end comes by right of the clock, and releases what is booked
        await tenant.until_status("TERMINATED")
    await tenant.at_rest()


async def test_nobody_makes_a_lease_that_does_what_they_may_not(tenant: Tenant) -> None:
    with without_right(tenant.service, "delete", mci_of(tenant)):
        asked = {"start": "+1h", "end": "+3h", "pool": tenant.name, "reservations": reserved(tenant)}
        refusal = await tenant.refused(tenant.lease(), "create", asked)
        assert refusal.category is Category.FORBIDDEN
        assert refusal.message == f"tester may not delete {mci_of(tenant)}: a denial forbids it: {WHY}"
        await tenant.create(reservations=reserved(tenant, "suspend"))


async def test_a_lease_does_not_delete_what_its_maker_may_not_delete_any_more(tenant: Tenant) -> None:
    await tenant.create(reservations=reserved(tenant))
    await tenant.forward(1.5 * HOUR)
    await tenant.until_status("ACTIVE")
    made = (await tenant.history(mci_of(tenant)))[0]
    assert (made.requested_by, made.on_behalf_of) == (tenant.lease(), "tester")
    with without_right(tenant.service, "delete", mci_of(tenant)):
        await tenant.forward(2 * HOUR)
        seen = await tenant.until_status("ERROR")
        assert f"tester may not delete {mci_of(tenant)}" in seen.reservations[0].error
        refused = [line for line in await tenant.history(mci_of(tenant)) if line.effect == "ignored"]
        assert refused[0].message.startswith(f"refused: tester may not delete {mci_of(tenant)}")
        assert (await tenant.do(tenant.lease(), "delete")).result is ActionResult.FAILED  # by the same tester
        request = Request(path=tenant.lease(), action="delete", requested_by="root")  # who acts for themselves now
        ticket = await tenant.asking.request_action(request)
        assert (await tenant.asking.wait_for_outcome(tenant.lease(), ticket.run)).status == "None"
        assert (await tenant.history(mci_of(tenant)))[-1].on_behalf_of == "root"


async def test_only_our_programs_ask_on_behalf_of_others(tenant: Tenant) -> None:
    await tenant.add_hosts("h1")
    await tenant.create()
    for by in ("eve", "clock"):  # the clock may, but for whoever made the lease
        asked = Request(path=tenant.lease(), action="end", requested_by=by, on_behalf_of="root")
        ticket = await tenant.asking.request_action(asked)
        assert ticket.admission.refusal
        assert ticket.admission.refusal.category is Category.FORBIDDEN
        assert "on behalf of root" in ticket.admission.refusal.message
