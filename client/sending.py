"""Sends a signal to an object: to its running action, or to the companion that takes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from temporalio.client import WorkflowExecutionStatus, WorkflowUpdateFailedError
from temporalio.service import RPCError, RPCStatusCode

from activities.refusals import refusal_of_error
from client.actions import ActionClient
from client.errors import Unanswered
from domain import registry, wire
from domain.errors import Category, Refused
from domain.kinds import ObjectSignal
from domain.message import SignedMessage
from domain.paths import ancestor_paths, kind_of
from domain.validation import refuse_validation_errors

SIGNAL_LIMIT_ERROR = "limit for signal"  # part of Temporal's error for a run that takes no more signals


async def send_signal(client: ActionClient, path: str, name: str, message: Mapping[str, Any], sender: str) -> str:
    """Sends the signal. Returns the ID of the workflow that took it; Refused if it is not valid, or nobody takes it.

    The message goes out as it came, as a CRM's proof signs every field of it.
    """
    signal = registry.kind_at(path).find_signal(name)
    raw = dict(message) | ({signal.sender_field: sender} if signal.sender_field else {})
    with refuse_validation_errors("the message is not valid", f"see: GET /v1/kinds/{kind_of(path)}"):
        parsed = signal.message.model_validate(raw)
    if signal.is_update:
        return await _send_update(client, path, signal, parsed)
    if signal.reaches_action and await _signal_workflow(client, path, name, raw):
        return path
    if signal.companion:
        kind, role = signal.companion
        owner = next((above for above in (*ancestor_paths(path), path) if kind_of(above) == kind), path)
        companion = wire.companion_id(owner, role)
        if isinstance(parsed, SignedMessage):
            signed = client.message_signer.sign(parsed, f"{name} {owner}")
            raw = signed.model_dump(mode="json", exclude_defaults=True)
        if await _signal_workflow(client, companion, name, raw if owner == path else {"path": path, **raw}):
            return companion
    raise _no_receiver_refusal(path, name)


async def _send_update(client: ActionClient, path: str, signal: ObjectSignal, message: BaseModel) -> str:
    running = await client.newest_run(path)
    if running is None or running.status is not WorkflowExecutionStatus.RUNNING:
        raise _no_receiver_refusal(path, signal.name)
    await client.check_polled(wire.ACTIONS_QUEUE)
    handle = client.client.get_workflow_handle(path, run_id=running.run_id)
    if isinstance(message, SignedMessage):
        message = client.message_signer.sign(message, f"{signal.name} {path}")
    patience = client.make_patience()
    try:
        await patience.await_answer(handle.execute_update(signal.name, message, result_type=str))
    except TimeoutError as error:
        within = f"within {patience.waited_seconds:.1f} s"
        why = f"{path} has not said {within} whether it takes {signal.name}; it may still do so"
        raise Unanswered(why, f"see: starter explain {path}") from error
    except WorkflowUpdateFailedError as error:
        if refusal := refusal_of_error(error.cause):
            raise refusal.to_error() from error
        raise _no_receiver_refusal(path, signal.name) from error  # another action runs, without this update
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:  # not found: it has ended
            raise
        raise _no_receiver_refusal(path, signal.name) from error
    return path


async def _signal_workflow(client: ActionClient, workflow_id: str, name: str, message: dict[str, Any]) -> bool:
    """Sends the signal. Returns False if no run is open there, or if it takes no more signals."""
    try:
        await client.client.get_workflow_handle(workflow_id).signal(name, message)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND or SIGNAL_LIMIT_ERROR in error.message:
            return False
        raise
    return True


def _no_receiver_refusal(path: str, name: str) -> Refused:
    return Refused(Category.NOT_ALLOWED, f"nothing on {path} waits for {name}", f"see: starter explain {path}")
