"""Orphans on a cloudlet: instances that its CRM has, and that no record knows."""

from __future__ import annotations

import pytest

from domain.model import ActionResult
from domain.orphans import Orphan
from tests.orphans import found_and_removed, listed, refused, removed
from tests.test_edge.kit import Edge, fault


async def with_strangers(edge: Edge, *names: tuple[str, ...]) -> str:
    """A cloudlet whose CRM connects with instances that we do not know."""
    path = await edge.up()
    for name in names:
        edge.platform().put_instance(edge.at("berlin", *name), {}, "create", "")
    await edge.stop_crm()
    await edge.start_crm()
    await edge.until_told(path, "orphan on the cloudlet, unknown to us")
    await edge.until(path, "Ready")
    return path


@pytest.mark.stores("sqlite", "postgres")
async def test_an_instance_that_a_crm_has_and_no_record_knows_is_named_listed_and_removed(edge: Edge) -> None:
    berlin = await with_strangers(edge, ("stranger",))
    path = edge.at("berlin", "stranger")
    orphan = await found_and_removed(edge.user.asking, path, berlin, "Ready")
    again = await refused(edge.user.asking, orphan)
    assert again == f"{path} is no orphan: the CRM of {berlin} has not reported it"
    assert edge.things() == []
    assert "orphans" not in (await edge.see(berlin)).info
    assert [line.to for line in await edge.user.history(path)][-1] == "None"
    await edge.at_rest()


async def test_an_app_goes_though_its_cluster_is_unknown_as_well(edge: Edge) -> None:
    berlin = await with_strangers(edge, ("c9",), ("c9", "shop"))
    cluster, app = await listed(edge.user.asking, berlin)
    for orphan in (app, cluster):
        assert (await removed(edge.user.asking, orphan)).result is ActionResult.SUCCEEDED
    assert edge.things() == []
    await edge.at_rest()


async def test_an_orphan_that_its_crm_cannot_delete_stays_one(edge: Edge) -> None:
    berlin = await with_strangers(edge, ("stranger",))
    edge.set_faults(fault("fail", "delete", times=1))
    (orphan,) = await listed(edge.user.asking, berlin)
    failed = await removed(edge.user.asking, orphan)
    assert (failed.result, failed.status) == (ActionResult.FAILED, "None")
    assert await listed(edge.user.asking, berlin) == [orphan]
    assert edge.things() == ["stranger"], "it was not made again"
    assert (await removed(edge.user.asking, orphan)).result is ActionResult.SUCCEEDED
    await edge.at_rest()


async def test_an_orphan_that_is_created_anew_is_none_any_more(edge: Edge) -> None:
    berlin = await with_strangers(edge, ("stranger",))
    path = edge.at("berlin", "stranger")
    assert (await edge.user.do(path, "create", spec={})).status == "Ready"
    assert await listed(edge.user.asking, berlin) == []
    assert await refused(edge.user.asking, Orphan(target=path)) == "ClusterInst exists already, under Ready"
    await edge.user.do(path, "delete")
    assert await listed(edge.user.asking, berlin) == []
