"""Bad input: refused with the reason, and nothing is changed."""

from __future__ import annotations

from typing import Any

import pytest

from domain.errors import Refused
from tests.test_machines.site import MachineSite

pytestmark = pytest.mark.stores("postgres")


@pytest.fixture
async def full(site: MachineSite) -> MachineSite:
    """Two machines on one node, a second node that is small, a third in maintenance, and disks."""
    await site.with_machine("db", "web", memory=4)
    await site.with_node(2, memory=1)
    await site.with_node(3)
    await site.to(site.node(3), "maintain")
    await site.to(site.machine("db"), "add-disk", disk="taken")
    await site.seed(site.disk("free"), "create")
    return site


async def test_disks_that_are_elsewhere_or_nowhere(full: MachineSite) -> None:
    db, web = full.machine("db"), full.machine("web")
    taken = full.disk("taken")
    for path, action, spec, told in [
        (web, "attach-disk", {"disk": "taken"}, f"disk {taken} is ASSIGNED, attached to {db}"),
        (web, "detach-disk", {"disk": "taken"}, f"disk {taken} is attached to {db}, not to {web}"),
        (web, "detach-disk", {"disk": "free"}, f"disk {full.disk('free')} is CREATED"),
        (web, "attach-disk", {"disk": "none"}, f"there is no such disk: {full.disk('none')}"),
        (web, "add-disk", {"disk": "free"}, f"disk {full.disk('free')} exists already, under CREATED"),
        (full.disk("free"), "attach", {"machine": "dev/none"}, "there is no such machine"),
        (taken, "attach", {"machine": "dev/web"}, "attach is not allowed for disk under ASSIGNED"),
    ]:
        assert told in await full.refused(path, action, **spec)
    await full.to(db, "delete")
    assert await full.status(taken) == "TOBEDELETED"
    assert f"machine {db} is DELETED" in await full.refused(taken, "restore")
    assert f"machine {db} is DELETED" in await full.refused(full.disk("free"), "attach", machine="dev/db")
    await full.at_rest()


async def test_migrations_to_the_same_a_full_a_disabled_or_no_node(full: MachineSite) -> None:
    db = full.machine("db")
    for node, told in [
        (f"{full.name}-1", "the machine is on node"),
        (f"{full.name}-2", "is full: 1 GiB are free, 4 are needed"),
        (f"{full.name}-3", "is MAINTENANCE"),
        (f"{full.name}-9", "there is no node"),
    ]:
        assert told in await full.refused(db, "migrate", node=node)
    assert (await full.see(db)).info["node"] == f"{full.name}-1"
    assert "is full" in await full.refused(
        full.machine("new"), "create", image=full.name, memory=2, node=f"{full.name}-2"
    )


async def test_things_that_need_things_that_are_not_there(site: MachineSite) -> None:
    for path, action, spec, told in [
        (site.space(), "create", {}, f"there is no such account: {site.account}"),
        (site.machine(), "create", {"image": "any"}, f"there is no such account: {site.account}"),
        (site.disk(), "create", {}, f"there is no such account: {site.account}"),
        (site.machine(), "start", {}, "there is no such machine"),
        (site.node(), "maintain", {}, "there is no such node"),
    ]:
        assert told in await site.refused(path, action, **spec)
    await site.with_space()
    assert "there is no image nothing" in await site.refused(site.machine(), "create", image="nothing")


@pytest.mark.parametrize(
    ("action", "spec", "told"),
    [
        ("create", {}, "image: Field required"),
        ("create", {"image": "../x"}, "bad name"),
        ("create", {"image": "u", "memory": 0}, "memory"),
        ("create", {"image": "u", "colour": "red"}, "colour"),
        ("migrate", {"node": "a b"}, "bad name"),
        ("attach-disk", {"disk": "' OR 1=1"}, "bad name"),
        ("delete", {"retention_days": -1}, "retention_days"),
        ("stop", {"now": True}, "takes no spec"),
        ("explode", {}, "unknown action 'explode'"),
    ],
)
async def test_a_spec_that_is_wrong_in_itself_never_reaches_the_server(
    site: MachineSite, action: str, spec: dict[str, Any], told: str
) -> None:
    with pytest.raises(Refused, match=told):
        await site.ask(site.machine(), action, **spec)


async def test_the_last_node_is_not_decommissioned(site: MachineSite) -> None:
    """Other tests have nodes too: the rule is asked with the nodes that there are."""
    from domain.machines.rules import check_another_node_enabled

    with pytest.raises(Refused, match="there is no other enabled node"):
        check_another_node_enabled("a", ["a"], "decommission of node:a")
    check_another_node_enabled("a", ["a", "b"], "decommission of node:a")


async def test_force_skips_the_status_but_never_the_end(site: MachineSite) -> None:
    await site.with_space()
    await site.seed(site.image, "create")
    draft = site.machine("draft")
    assert await site.to(draft, "create", image=site.name, virtual=True) == "VIRTUAL"
    ticket = await site.ask(draft, "stop")
    assert ticket.admission.refusal
    assert ticket.admission.refusal.hint == f"{draft} is VIRTUAL; allowed now: deploy, delete, destroy"
    assert "destroy is not for User on cloudspace under DEPLOYED" in await site.refused(site.space(), "destroy")
    assert await site.to(draft, "destroy", force=True) == "DESTROYED"
    assert "under DESTROYED" in await site.refused(draft, "start", force=True)
    await site.at_rest()


@pytest.mark.parametrize(
    ("kind", "status"), [("machine", "VIRTUAL"), ("cloudspace", "VIRTUAL"), ("disk", "MODELED"), ("image", "VIRTUAL")]
)
async def test_what_a_failed_creation_leaves_says_what_removes_it_and_goes_without_force(
    site: MachineSite, kind: str, status: str
) -> None:
    await site.with_machine()
    image = f"image:{site.name}-new"
    path = {"machine": site.machine("new"), "cloudspace": site.space("new"), "disk": site.disk("new"), "image": image}
    spec = {"image": site.name, "memory": 1} if kind == "machine" else {}
    await site.fault("fail", path[kind], verb="create", message="no room")
    failed = await site.do(path[kind], "create", **spec)
    assert (failed.result, failed.status) == ("failed", status)
    await site.heal_faults()
    again = await site.would_be_refused(path[kind], "create", **spec)
    assert again
    assert {"deploy", "delete", "destroy"} <= set(again.hint.partition("allowed now: ")[2].split(", ")), again.hint
    assert await site.to(path[kind], "delete") == "DESTROYED"
    await site.at_rest()
