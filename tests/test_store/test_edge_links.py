"""What a CRM's connection changes, asked of the store itself: a worker may die after the commit, and asks again."""

from __future__ import annotations

import sqlalchemy as sa

from domain.edge.facts import ConnectFact, LostFact, Standing
from domain.edge.messages import CrmConnect, CrmDisconnect
from store.edge import links
from store.schema import objects
from tests.test_store.scene import NOON, Scene

BERLIN = "org:acme:cloudlet:berlin"


def connect(notify_id: int, version: str = "v1") -> ConnectFact:
    return ConnectFact(cloudlet=BERLIN, said=CrmConnect(notify_id=notify_id, version=version), at=NOON)


async def test_a_connection_whose_answer_was_lost_is_answered_alike_and_told_once(scene: Scene) -> None:
    await scene.grant(BERLIN, "create", spec={})
    for _ in range(2):
        found = await scene.database.run(lambda connection: links.connected(connection, connect(1)))
        assert (found.standing, found.address and found.address.notify_id) == (Standing.OWNED, 1)


async def test_a_connection_at_rest_that_is_asked_again_is_acknowledged_again_without_another_line(
    scene: Scene,
) -> None:
    grant = await scene.grant(BERLIN, "create", spec={})
    await scene.finish(grant)
    first = await scene.database.run(lambda connection: links.connected(connection, connect(1)))
    lines = await scene.told(BERLIN)
    assert first.standing is Standing.ACKED
    assert await scene.database.run(lambda connection: links.connected(connection, connect(1))) == first
    assert await scene.told(BERLIN) == lines


async def test_a_connection_that_is_over_cannot_be_taken_up_again(scene: Scene) -> None:
    await scene.finish(await scene.grant(BERLIN, "create", spec={}))
    await scene.database.run(lambda connection: links.connected(connection, connect(1)))
    gone = LostFact(cloudlet=BERLIN, said=CrmDisconnect(notify_id=1), at=NOON)
    await scene.database.run(lambda connection: links.lost(connection, gone))
    again = await scene.database.run(lambda connection: links.connected(connection, connect(1)))
    assert (again.standing, again.why) == (Standing.REFUSED, "notify-id 1 is not newer than 1")


async def test_an_app_that_has_lost_its_cluster_can_still_be_deleted(scene: Scene) -> None:
    grant = await scene.grant(BERLIN, "create", spec={})
    await scene.database.run(lambda connection: links.connected(connection, connect(1)))
    await scene.finish(grant)
    cluster, app = f"{BERLIN}:cluster:c1", f"{BERLIN}:cluster:c1:app:shop"
    for path in (cluster, app):
        await scene.finish(await scene.grant(path, "create", spec={}))
    await scene.database.run(lambda connection: connection.execute(sa.delete(objects).where(objects.c.path == cluster)))
    assert "there is no such ClusterInst" in (await scene.refusal(app, "update", spec={"replicas": 2})).message
    await scene.finish(await scene.grant(app, "delete"))
    assert await scene.inventory.list_objects("app", BERLIN, "", 10) == []
