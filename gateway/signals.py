"""Signals over HTTP: what systems outside tell an object's running action, or its companion."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path

from client.sending import send_signal
from domain.model import FrozenModel
from gateway.context import CallerOf, ErrorTranslatingRoute, Ratchet
from gateway.native import PathParameter
from gateway.openapi import PROBLEM_RESPONSES

router = APIRouter(prefix="/v1", responses=PROBLEM_RESPONSES, route_class=ErrorTranslatingRoute)


class SignalReceipt(FrozenModel):
    """Who took a signal: the object's path for its action, or the ID of a companion."""

    received_by: str


@router.post("/objects/{path}/signals/{name}", status_code=HTTPStatus.ACCEPTED)
async def post_signal(
    ratchet: Ratchet,
    caller: CallerOf,
    path: PathParameter,
    name: Annotated[str, Path(examples=["continue"], max_length=40)],
    message: Annotated[dict[str, Any], Body(examples=[{"reason": "checked by hand"}])],
) -> SignalReceipt:
    """Send a message to the running action of an object: `continue` or `withdraw` of a held MCI, a CRM's answer, or the
    load of an app (`demand`)."""
    return SignalReceipt(received_by=await send_signal(ratchet, path, name, message, caller.name))
