"""`starter demand`: sends measurements to a policy."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from domain.edge import messages
from domain.edge.policies import DemandSignal
from domain.errors import Category, Refused
from domain.paths import expand_path, short_path
from domain.validation import refuse_validation_errors
from domain.wire import companion_id
from starter import terminal
from starter.errors import ExitCode
from starter.kinds import ObjectArg
from starter.session import open_client


async def demand(
    policy: ObjectArg,
    /,
    *,
    cloudlet: Annotated[str, Parameter(help="Near which cloudlet the clients are.")] = "",
    clients: Annotated[int | None, Parameter(help="How many clients ask for the app there.")] = None,
    cpu: Annotated[float | None, Parameter(help="Load of the cluster's CPUs, in percent.")] = None,
    mem: Annotated[float | None, Parameter(help="Use of its memory, in percent.")] = None,
    connections: Annotated[float | None, Parameter(help="Active connections per node.")] = None,
) -> ExitCode:
    """Send measurements to a policy. It acts on them at the end of its interval.

    Example: starter demand acme/follow --cloudlet berlin --clients 120
    """
    path = expand_path(policy, ("org", "policy"))
    seen = {"cloudlet": cloudlet, "clients": clients, "cpu": cpu, "mem": mem, "connections": connections}
    with refuse_validation_errors("the demand is not valid"):
        message = DemandSignal.model_validate({key: value for key, value in seen.items() if value is not None})
    if message.clients is None and message.cpu is None and message.mem is None and message.connections is None:
        raise Refused(Category.INVALID, "nothing was measured", "say --cloudlet and --clients, or --cpu, --mem …")
    await _send_demand(path, message)
    terminal.print_message(f"sent to {short_path(path)}")
    return ExitCode.DONE


async def _send_demand(path: str, message: DemandSignal) -> None:
    from temporalio.service import RPCError, RPCStatusCode

    async with open_client() as client:
        loop = client.client.get_workflow_handle(companion_id(path, messages.LOOP_ROLE))
        try:
            await loop.signal(
                messages.DEMAND_SIGNAL, client.message_signer.sign(message, f"{messages.DEMAND_SIGNAL} {path}")
            )
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            raise Refused(Category.NOT_FOUND, f"there is no such policy: {path}", "starter policy list") from error
