"""Which CRMs a cloudlet has after an action: those that are connected, and another one only while it may take over."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from domain.model import ActionResult, Outcome
from store.edge.hooks import StoredCrmConnection, finish_cloudlet_action, remaining_crms
from store.schema import objects
from tests.test_store.driver import NOON, StoreDriver

BERLIN = "org:acme:cloudlet:berlin"


def crm(number: int, connected: bool = True) -> dict[str, Any]:
    return {"version": f"v{number}", "notify_id": number, "connected": connected}


@pytest.mark.parametrize(
    ("serving", "other", "left"),
    [
        (crm(1), None, (crm(1), None)),
        (crm(1), crm(2, connected=False), (crm(1), None)),
        (crm(1), crm(2), (crm(1), crm(2))),
        (crm(1, connected=False), crm(2), (crm(2), None)),
        (None, crm(2), (crm(2), None)),
        (None, None, (None, None)),
    ],
)
def test_of_two_crms_those_that_are_connected_remain(
    serving: StoredCrmConnection, other: StoredCrmConnection, left: tuple[StoredCrmConnection, StoredCrmConnection]
) -> None:
    assert remaining_crms(serving, other) == left


@pytest.mark.parametrize(
    ("action", "status", "known", "left"),
    [
        ("upgrade", "UpdateError", {"crm": crm(1), "next": crm(2)}, (crm(1), crm(2), "v1")),
        ("upgrade", "UpdateError", {"crm": crm(1, connected=False), "next": crm(2)}, (crm(2), None, "v1")),
        ("repair", "UpdateError", {"crm": crm(1), "next": crm(2)}, (crm(1), crm(2), "v1")),
        (
            "repair",
            "Ready",
            {"crm": crm(3), "next": crm(2)},
            (crm(3), None, "v3"),
        ),  # it may have started another version
        ("repair", "Ready", {}, (None, None, "v1")),
        ("rekey", "UpdateError", {"crm": crm(1), "next": crm(2)}, (crm(1), None, "v1")),
        ("maintenance-end", "Ready", {"crm": crm(3)}, (crm(3), None, "v1")),
    ],
)
async def test_a_crm_that_was_to_take_over_remains_after_an_upgrade_or_a_repair_that_failed(
    driver: StoreDriver, action: str, status: str, known: dict[str, Any], left: tuple[Any, ...]
) -> None:
    created = await driver.grant(BERLIN, "create", spec={"version": "v1"})
    await driver.finish(created)
    result = ActionResult.SUCCEEDED if status == "Ready" else ActionResult.FAILED
    outcome = Outcome(path=BERLIN, action=action, result=result, status=status)

    def end(connection: sa.Connection) -> None:
        connection.execute(sa.update(objects).where(objects.c.path == BERLIN).values(status=status, info=known))
        finish_cloudlet_action(connection, created.model_copy(update={"action": action}), outcome, NOON)

    await driver.database.run_transaction(end)
    view = await driver.inventory.read_object(BERLIN)
    assert (view.info.get("crm"), view.info.get("next"), view.spec["version"]) == left
