"""Orphans at a backend: services that run there, and that no record knows."""

from __future__ import annotations

import pytest

from domain.errors import Superseded
from domain.orphans import Orphan
from domain.services.ports import ServiceOrder
from tests.orphans import found_and_removed, listed, refused, removed
from tests.test_systems.kit import RUN, Shop, service, system


async def come_late(shop: Shop, tree: str, generation: int) -> None:
    """The backend carries out an order of a deploy that is over, and has it up."""
    await shop.supervisor.apply_orders([ServiceOrder(shop.at(tree), generation, {"instances": 1, **RUN})])

    async def is_up() -> bool:
        facts = await shop.supervisor.describe_services(shop.at(tree))
        return any(fact.is_rolled_out() for fact in facts)

    await shop.until(is_up)


@pytest.mark.stores("sqlite", "postgres")
async def test_a_service_that_comes_after_cancel_and_delete_is_named_listed_and_removed(shop: Shop) -> None:
    shop.hold("/web")
    deploy = await shop.begin("/", system(service("web")))
    await shop.until_record("d1", "in progress")
    await shop.asking.cancel_action(shop.path)
    shop.let_go()
    await deploy
    assert (await shop.do("/", "delete")).status == "None"
    over = 2 * (await shop.service.inventory.read_last_epoch())
    await come_late(shop, "/web", over)
    orphan = await found_and_removed(shop.asking, shop.at("/web"), shop.backend, "1 of 1 up")
    assert (orphan.token, bool(orphan.since)) == (str(over), True)
    assert (await removed(shop.asking, orphan)).message == "no backend runs such a service any more"
    assert await shop.units("/web") == []
    with pytest.raises(Superseded):  # the worker that was frozen wakes, and gives its order
        await come_late(shop, "/web", over)


async def test_a_service_that_no_deploy_knows_is_removed_beside_its_neighbours(shop: Shop) -> None:
    await shop.deploy("/", system(service("web")))
    await come_late(shop, "/stray", 2 * (await shop.service.inventory.read_last_epoch()))
    await found_and_removed(shop.asking, shop.at("/stray"), shop.backend, "1 of 1 up")
    assert (await shop.states())["/web"] == "stable"
    await shop.all_promises_are_kept()


async def test_a_service_with_a_record_is_no_orphan(shop: Shop) -> None:
    await shop.deploy("/", system(service("web")))
    assert await listed(shop.asking, shop.path) == []
    known = Orphan(target=shop.at("/web"), provider=shop.backend)
    assert await refused(shop.asking, known) == "Part exists already, under stable"
