"""One namespace, one store: the first worker registers its store with Temporal; every other must use the same.

The registration is the memo of a paused schedule: Temporal creates it only once, keeps it without a worker, and
shows it in its Web UI.
"""

from __future__ import annotations

from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleSpec,
    ScheduleState,
)
from temporalio.exceptions import TemporalError
from temporalio.service import RPCError, RPCStatusCode

from client.encryption import is_encrypted
from domain import wire
from domain.errors import Category, Refused
from domain.healing import SweepOptions

STORE_MEMO = "store"
_SCHEDULE_NOTE = "Tells workers which store this namespace uses. It never runs. See docs/operations.md."


async def register_store(client: Client, store: str, where: str) -> None:
    """Registers this store; refuses if the workers of this namespace use another one."""
    registered = await read_registered_store(client)
    if registered is None:
        try:
            await client.create_schedule(wire.STORE_SCHEDULE, _noop_schedule_action(), memo={STORE_MEMO: store})
            return
        except ScheduleAlreadyRunningError:  # another worker registered first
            registered = await read_registered_store(client)
    if registered == store and client.data_converter.payload_codec and await _is_written_in_plaintext(client):
        await forget_registered_store(client)  # keys are being introduced: written anew, it is sealed
        await register_store(client, store, where)
    if registered != store:
        raise other_store_refusal(client, registered, where, store)


def other_store_refusal(client: Client, registered: str | None, where: str, store: str) -> Refused:
    """Returns the refusal of a store, or of an empty database, where the namespace's workers use another store."""
    found = f"the store {store}" if store else "empty"
    return Refused(
        Category.INVALID,
        f"the workers of namespace {client.namespace} use the store {registered}, but {where} is {found}",
        "set RATCHET_STORE_URL as on the others; if their store is lost: starter setup --forget-store",
    )


async def read_registered_store(client: Client) -> str | None:
    """Returns the ID of the store registered for this namespace; None if none is."""
    try:
        described = await client.get_schedule_handle(wire.STORE_SCHEDULE).describe()
        return str(await described.memo_value(STORE_MEMO, default="", type_hint=str))
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return None
        raise
    except (TemporalError, ValueError, RuntimeError) as error:
        raise Refused(
            Category.INVALID,
            f"what namespace {client.namespace} knows of its store cannot be read: {error}",
            "set RATCHET_KEYS_FILE as on the other workers",
        ) from error


async def _is_written_in_plaintext(client: Client) -> bool:
    described = await client.get_schedule_handle(wire.STORE_SCHEDULE).describe()
    return not is_encrypted(described.raw_description.memo.fields[STORE_MEMO])


async def forget_registered_store(client: Client) -> bool:
    """Deletes the registration; the next worker registers its store. Returns False if there was none."""
    try:
        await client.get_schedule_handle(wire.STORE_SCHEDULE).delete()
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return False
        raise
    return True


def _noop_schedule_action() -> Schedule:
    """Returns the schedule's action; triggered by hand, it runs a sweep that changes nothing."""
    return Schedule(
        action=ScheduleActionStartWorkflow(
            wire.HEAL_WORKFLOW, SweepOptions(dry_run=True), id=wire.STORE_SCHEDULE, task_queue=wire.ACTIONS_QUEUE
        ),
        spec=ScheduleSpec(),
        state=ScheduleState(paused=True, note=_SCHEDULE_NOTE),
    )
