"""Bad input: refused with the reason, and nothing is changed."""

from __future__ import annotations

from typing import Any

import pytest

from domain.errors import Refused
from tests.test_machines.estate import Estate

pytestmark = pytest.mark.stores("postgres")


@pytest.fixture
async def full(estate: Estate) -> Estate:
    """Two machines on one node, a second node that is small, a third in maintenance, and disks."""
    await estate.with_machine("db", "web", memory=4)
    await estate.with_node(2, memory=1)
    await estate.with_node(3)
    await estate.to(estate.node(3), "maintain")
    await estate.to(estate.machine("db"), "add-disk", disk="taken")
    await estate.seed(estate.disk("free"), "create")
    return estate


async def test_disks_that_are_elsewhere_or_nowhere(full: Estate) -> None:
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


async def test_migrations_to_the_same_a_full_a_disabled_or_no_node(full: Estate) -> None:
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


async def test_things_that_need_things_that_are_not_there(estate: Estate) -> None:
    for path, action, spec, told in [
        (estate.space(), "create", {}, f"there is no such account: {estate.account}"),
        (estate.machine(), "create", {"image": "any"}, f"there is no such account: {estate.account}"),
        (estate.disk(), "create", {}, f"there is no such account: {estate.account}"),
        (estate.machine(), "start", {}, "there is no such machine"),
        (estate.node(), "maintain", {}, "there is no such node"),
    ]:
        assert told in await estate.refused(path, action, **spec)
    await estate.with_space()
    assert "there is no image nothing" in await estate.refused(estate.machine(), "create", image="nothing")


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
    estate: Estate, action: str, spec: dict[str, Any], told: str
) -> None:
    with pytest.raises(Refused, match=told):
        await estate.ask(estate.machine(), action, **spec)


async def test_the_last_node_is_not_decommissioned(estate: Estate) -> None:
    """Other tests have nodes too: the rule is asked with the nodes that there are."""
    from domain.machines.rules import check_another_node

    with pytest.raises(Refused, match="there is no other enabled node"):
        check_another_node("a", ["a"], "decommission of node:a")
    check_another_node("a", ["a", "b"], "decommission of node:a")


async def test_force_skips_the_status_but_never_the_end(estate: Estate) -> None:
    await estate.with_space()
    await estate.seed(estate.image, "create")
    draft = estate.machine("draft")
    assert await estate.to(draft, "create", image=estate.name, virtual=True) == "VIRTUAL"
    ticket = await estate.ask(draft, "stop")
    assert ticket.admission.refusal
    assert ticket.admission.refusal.hint == f"{draft} is VIRTUAL; allowed now: deploy, delete, destroy"
    assert "destroy is not for User on cloudspace under DEPLOYED" in await estate.refused(estate.space(), "destroy")
    assert await estate.to(draft, "destroy", force=True) == "DESTROYED"
    assert "under DESTROYED" in await estate.refused(draft, "start", force=True)
    await estate.at_rest()
