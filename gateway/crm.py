"""The CRM door: a CRM takes its orders and posts its answers here with its cloudlet's token, and can do nothing else.

The token is a private key that stays with the CRM. The cloudlet has the public half, and every request is signed.
"""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Request
from pydantic import Field

from activities.signatures import why_unproven
from client.errors import Unanswered
from domain.edge import messages
from domain.edge.messages import CrmOrders, CrmPoll
from domain.edge.proofs import PROOF_FIELD, text_to_sign
from domain.edge.tables import CLOUDLET
from domain.errors import Category, Refused
from domain.model import FrozenModel
from domain.paths import kind_of
from domain.validation import ObjectPath
from gateway.context import ErrorTranslatingRoute, gateway_of_request
from gateway.openapi import PROBLEM_RESPONSES
from gateway.problems import Unauthorized
from workers.crmqueues import CLOCK_SECONDS

router = APIRouter(prefix="/v1/crm", tags=["crm"], responses=PROBLEM_RESPONSES, route_class=ErrorTranslatingRoute)
CloudletParameter = Annotated[str, Path(examples=["org:acme:cloudlet:berlin"], max_length=500)]
SignalName = Literal["crm_connect", "crm_response", "crm_disconnect"]


class CrmMessage(FrozenModel):
    """A signed message of a CRM, and the object that it is about."""

    to: Annotated[ObjectPath, Field(examples=["org:acme:cloudlet:berlin:cluster:c1"])]
    message: Annotated[dict[str, Any], Field(examples=[{"path": "org:acme:cloudlet:berlin:cluster:c1", "proof": "…"}])]


class NotifyIdQuery(FrozenModel):
    """A signed question for the highest notify-id. `at` is the CRM's clock in microseconds."""

    at: int = Field(ge=0, le=2**53, examples=[1_790_000_000_000_000])
    proof: Annotated[str, Field(max_length=200)] = ""


class KnownNotifyId(FrozenModel):
    """The highest notify-id that the controller knows; a CRM connects with a higher one."""

    notify_id: int


class MessageReceipt(FrozenModel):
    """The message was passed on. What it changed is in the object's history."""

    received: bool = True


@router.post("/{cloudlet}/orders")
async def poll_orders(request: Request, cloudlet: CloudletParameter, poll: CrmPoll) -> CrmOrders:
    """Take a CRM's next orders, as soon as there are some. `received` confirms the last ones."""
    await _check_proof(request, cloudlet, messages.CRM_POLL, cloudlet, poll.model_dump())
    return await gateway_of_request(request).crm_door.poll(cloudlet, poll)


@router.post("/{cloudlet}/notify-id")
async def read_notify_id(request: Request, cloudlet: CloudletParameter, query: NotifyIdQuery) -> KnownNotifyId:
    """The notify-id of the CRM that is connected."""
    await _check_proof(request, cloudlet, messages.CRM_POLL, cloudlet, query.model_dump())
    if abs(time.time() - query.at / 1_000_000) > CLOCK_SECONDS:
        raise Refused(Category.INVALID, "at: the question is too old, or of the future", "look at the CRM's clock")
    return KnownNotifyId(notify_id=await gateway_of_request(request).crm_door.read_known_notify_id(cloudlet))


@router.post("/{cloudlet}/messages/{signal}", status_code=HTTPStatus.ACCEPTED)
async def post_message(
    request: Request, cloudlet: CloudletParameter, signal: SignalName, body: CrmMessage
) -> MessageReceipt:
    """Pass on a CRM's message: to the action that waits for it, or to the cloudlet's link."""
    about = str(body.message.get("path") or body.to)
    for path in (body.to, about):
        if path != cloudlet and not path.startswith(f"{cloudlet}:"):
            raise Unauthorized(f"{path} is not on {cloudlet}")
    await _check_proof(request, cloudlet, signal, about, body.message)
    try:
        await gateway_of_request(request).crm_door.deliver_to_controller(cloudlet, signal, body.to, body.message)
    except TimeoutError as error:
        raise Unanswered("Temporal did not take the message in time", "send it again") from error
    return MessageReceipt()


async def _check_proof(request: Request, cloudlet: str, signal: str, about: str, message: dict[str, Any]) -> None:
    """Raises Unauthorized unless the cloudlet's own CRM has signed the message."""
    if kind_of(cloudlet) != CLOUDLET.kind:
        raise Refused(Category.NOT_FOUND, f"{cloudlet[:200]} is no cloudlet", "name a cloudlet: org:NAME:cloudlet:NAME")
    key = str((await gateway_of_request(request).ratchet.read_object(cloudlet)).spec.get("key") or "")
    if not key:
        raise Unauthorized(f"{cloudlet} has no key: starter cloudlet rekey {cloudlet} --key KEY")
    if why := why_unproven(key, text_to_sign(signal, about, message), str(message.get(PROOF_FIELD) or "")):
        raise Unauthorized(why)
