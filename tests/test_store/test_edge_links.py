"""A CRM's connection in the store is idempotent: a worker that died after the commit asks again."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial

import pytest
import sqlalchemy as sa

from domain.edge.messages import CrmConnect, CrmDisconnect, CrmResponse, IgnoredMessage, ReportedInstance
from domain.edge.reports import AnswerReport, ConnectionDecision, ConnectReport, DisconnectReport
from domain.errors import Refused
from store.edge import hooks, links, queries
from store.schema import objects
from tests.test_store.driver import NOON, StoreDriver, no_doubt

BERLIN = "org:acme:cloudlet:berlin"


def connect(notify_id: int, version: str = "v1") -> ConnectReport:
    return ConnectReport(cloudlet=BERLIN, said=CrmConnect(notify_id=notify_id, version=version), at=NOON)


async def test_a_connection_whose_answer_was_lost_is_answered_alike_and_told_once(driver: StoreDriver) -> None:
    await driver.grant(BERLIN, "create", spec={})
    for _ in range(2):
        found = await driver.database.run_transaction(
            lambda connection: links.accept_connection(connection, connect(1), no_doubt)
        )
        assert (found.standing, found.address and found.address.notify_id) == (ConnectionDecision.OWNED, 1)


async def test_a_connection_at_rest_that_is_asked_again_is_acknowledged_again_without_another_line(
    driver: StoreDriver,
) -> None:
    grant = await driver.grant(BERLIN, "create", spec={})
    await driver.finish(grant)
    first = await driver.database.run_transaction(
        lambda connection: links.accept_connection(connection, connect(1), no_doubt)
    )
    lines = await driver.told(BERLIN)
    assert first.standing is ConnectionDecision.ACKED
    assert (
        await driver.database.run_transaction(
            lambda connection: links.accept_connection(connection, connect(1), no_doubt)
        )
        == first
    )
    assert await driver.told(BERLIN) == lines


async def test_a_connection_that_is_over_cannot_be_taken_up_again(driver: StoreDriver) -> None:
    await driver.finish(await driver.grant(BERLIN, "create", spec={}))
    await driver.database.run_transaction(lambda connection: links.accept_connection(connection, connect(1), no_doubt))
    gone = DisconnectReport(cloudlet=BERLIN, said=CrmDisconnect(notify_id=1), at=NOON)
    await driver.database.run_transaction(lambda connection: links.record_disconnect(connection, gone, no_doubt))
    again = await driver.database.run_transaction(
        lambda connection: links.accept_connection(connection, connect(1), no_doubt)
    )
    assert (again.standing, again.why) == (ConnectionDecision.REFUSED, "notify-id 1 is not newer than 1")


async def test_what_was_ignored_is_told_once_however_often_its_worker_asks(driver: StoreDriver) -> None:
    await driver.finish(await driver.grant(BERLIN, "create", spec={}))
    await driver.database.run_transaction(lambda connection: links.accept_connection(connection, connect(1), no_doubt))
    before = len(await driver.told(BERLIN))
    said = CrmResponse(state="Ready", notify_id=9)
    answer = AnswerReport(cloudlet=BERLIN, said=said, at=NOON, key="run 1")
    late = [IgnoredMessage(path=BERLIN, state="Ready", reason="late", key=f"run {n}") for n in (2, 3)]
    for _ in range(2):
        assert (
            await driver.database.run_transaction(partial(links.record_answer, doubt=no_doubt, fact=answer))
        ).ignored
        await driver.database.run_transaction(partial(links.record_ignored_messages, messages=late, at=NOON))
    told = (await driver.inventory.read_history(BERLIN, 100))[before:]
    assert [(line.effect, line.message) for line in told] == [
        ("ignored", "ignored: notify-id 9 is not the current one"),
        ("ignored", "ignored: late"),
        ("ignored", "ignored: late"),
    ]


async def test_an_app_that_has_lost_its_cluster_can_still_be_deleted(driver: StoreDriver) -> None:
    grant = await driver.grant(BERLIN, "create", spec={})
    await driver.database.run_transaction(lambda connection: links.accept_connection(connection, connect(1), no_doubt))
    await driver.finish(grant)
    cluster, app = f"{BERLIN}:cluster:c1", f"{BERLIN}:cluster:c1:app:shop"
    for path in (cluster, app):
        await driver.finish(await driver.grant(path, "create", spec={}))
    await driver.database.run_transaction(
        lambda connection: connection.execute(sa.delete(objects).where(objects.c.path == cluster))
    )
    assert "there is no such ClusterInst" in (await driver.refusal(app, "update", spec={"replicas": 2})).message
    await driver.finish(await driver.grant(app, "delete"))
    assert await driver.inventory.list_objects("app", BERLIN, "", 10) == []


async def test_an_instance_that_a_crm_does_not_have_is_told_as_ignored_and_as_applied_when_it_is_back(
    driver: StoreDriver,
) -> None:
    grant, cluster = await driver.grant(BERLIN, "create", spec={}), f"{BERLIN}:cluster:c1"
    await driver.database.run_transaction(lambda connection: links.accept_connection(connection, connect(1), no_doubt))
    await driver.finish(grant)
    await driver.finish(await driver.grant(cluster, "create", spec={}))
    for number, there, told in (
        (2, {}, ("ignored", "ignored: the CRM does not have it: missing; recreate it or delete it")),
        (3, {cluster: ReportedInstance(state="Ready")}, ("applied", "the CRM has it again")),
    ):
        report = connect(number).model_copy(update={"instances": there})
        await driver.database.run_transaction(partial(links.accept_connection, doubt=no_doubt, fact=report))
        line = await driver.last(cluster)
        assert (line.effect, line.message) == told


async def test_what_a_crm_has_is_an_orphan_only_if_it_could_be_its_own(driver: StoreDriver) -> None:
    await driver.finish(await driver.grant(BERLIN, "create", spec={}))
    elsewhere = BERLIN.replace("berlin", "munich")
    paths = (f"{BERLIN}:cluster:c1", f"{elsewhere}:cluster:c1", f"{BERLIN}:no such path")
    report = connect(1).model_copy(update={"instances": {path: ReportedInstance(state="Ready") for path in paths}})
    await driver.database.run_transaction(partial(links.accept_connection, doubt=no_doubt, fact=report))
    assert (await driver.inventory.read_object(BERLIN)).info["orphans"] == [f"{BERLIN}:cluster:c1"]


async def test_a_crm_is_told_of_its_own_instances_that_are_ready(
    driver: StoreDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Page by page; what is under way, of another cloudlet, or of one whose name begins alike, is not in it."""
    own = [f"{BERLIN}:cluster:c{n}" for n in range(3)]
    for cloudlet in (BERLIN, f"{BERLIN}-2", "org:acme:cloudlet:paris"):
        grant = await driver.grant(cloudlet, "create", spec={})
        said = ConnectReport(cloudlet=cloudlet, said=CrmConnect(notify_id=1, version="v1"), at=NOON)
        await driver.database.run_transaction(partial(links.accept_connection, doubt=no_doubt, fact=said))
        await driver.finish(grant)
    for path in (*own, f"{BERLIN}-2:cluster:c1", "org:acme:cloudlet:paris:cluster:c1"):
        await driver.finish(await driver.grant(path, "create", spec={}))
    await driver.grant(f"{BERLIN}:cluster:c9", "create", spec={})
    monkeypatch.setattr(queries, "INSTANCES_PER_PAGE", 2)
    first = await driver.database.run_transaction(partial(queries.list_expected_instances, cloudlet=BERLIN))
    after = partial(queries.list_expected_instances, cloudlet=BERLIN, after=own[1])
    last = await driver.database.run_transaction(after)
    assert [([item.path for item in page.items], page.more) for page in (first, last)] == [
        (own[:2], True),
        (own[2:], False),
    ]


@pytest.mark.parametrize(("key", "can_check", "refused"), [("k", False, True), ("k", True, False), ("", False, False)])
def test_a_cloudlet_with_a_key_needs_workers_that_can_check_proofs(
    monkeypatch: pytest.MonkeyPatch, key: str, can_check: bool, refused: bool
) -> None:
    monkeypatch.setattr(hooks, "find_spec", lambda name: name if can_check else None)
    with pytest.raises(Refused, match="check proofs") if refused else nullcontext():
        hooks._check_signatures_supported(key)
