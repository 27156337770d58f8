"""`starter connections`: the places in clouds that the workers serve, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from domain import wire
from domain.connections import ConnectionsQuery, ConnectionsView, ConnectionView
from domain.errors import RatchetError
from starter import terminal
from starter.errors import ExitCode, to_printed_error
from starter.flags import OutputOption
from starter.output import Sheet, print_sheet
from starter.session import open_client

if TYPE_CHECKING:
    from client.actions import ActionClient

HEADINGS = ("NAME", "PROVIDER", "CLOUD", "REGION", "CREDENTIALS", "STATE")
LOOK_SECONDS = 60.0  # longer than a worker waits for a cloud


async def connections(
    *,
    check: Annotated[bool, Parameter(negative="", help="Test the credentials with each real cloud.")] = False,
    output: OutputOption = "table",
) -> ExitCode:
    """List the connections: cloud, region, provider, and whether credentials are found. Never shows credentials.

    Example: starter connections --check
    """
    async with open_client() as client:
        views = await read_connections(client, check)
    cells = [
        (view.name, view.provider, view.csp, view.region, view.credentials, _describe_credentials(view))
        for view in views
    ]
    data = [view.model_dump(mode="json") for view in views]
    print_sheet(Sheet(data, HEADINGS, cells, [view.name for view in views]), output)
    ill = [view for view in views if view.trouble]
    for view in ill:
        terminal.print_message(f"{view.name}: {view.trouble}", "red")
    if ill:
        pages = " and ".join(sorted({view.page for view in ill if view.page}))
        terminal.print_message(f"  hint: correct the file, the credentials, or the network; {pages} describes them")
    return ExitCode.FAILED if ill else ExitCode.DONE


async def read_connections(client: ActionClient, check: bool) -> list[ConnectionView]:
    """Returns all connections; those of real clouds as their workers report them."""
    named = (await client.run_query(wire.READ_CONNECTIONS, ConnectionsQuery(), ConnectionsView)).connections
    real = sorted({view.csp for view in named if view.provider != "simulated"})
    looked = {view.name: view for csp in real for view in await _inspect_cloud_connections(client, csp, check, named)}
    return [looked.get(view.name, view) for view in named]


async def _inspect_cloud_connections(
    client: ActionClient, csp: str, check: bool, named: list[ConnectionView]
) -> list[ConnectionView]:
    """Asks the cloud's own worker about its connections; reports it as trouble if none answers."""
    query = ConnectionsQuery(csp=csp, check=check)
    try:
        view = await client.run_query(
            wire.READ_CONNECTIONS, query, ConnectionsView, seconds=LOOK_SECONDS, queue=wire.cloud_queue(csp)
        )
    except RatchetError as error:
        why = to_printed_error(error).why
        return [view.model_copy(update={"trouble": why}) for view in named if view.csp == csp]
    return view.connections


def _describe_credentials(view: ConnectionView) -> str:
    if view.provider == "simulated":
        return "needs none"
    return view.trouble or view.answer or "found; --check asks the cloud"
