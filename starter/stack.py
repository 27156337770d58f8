"""`starter up`, `worker`, `migrate`, `setup`: the embedded stack, a worker, the schema, the search attributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from domain import wire
from starter import terminal
from starter.errors import Exit
from starter.gateway import gateway_settings
from starter.session import session

if TYPE_CHECKING:
    from temporalio.api.enums.v1 import IndexedValueType

    from client.actions import ActionClient
    from workers.settings import Settings

ServerPort = Annotated[int, Parameter(help="0 is the usual port, or any free one.")]
ForgetOption = Annotated[
    bool, Parameter(negative="", help="Forget which store this namespace's workers use, because it is lost.")
]
RestoredOption = Annotated[
    bool, Parameter(negative="", help="The store comes from a backup: end what was open in it, refuse all older runs.")
]


async def up(*, port: ServerPort = 0, ui_port: ServerPort = 0) -> Exit:
    """Run everything here: a Temporal server and a worker, with their data in .ratchet/, until Ctrl-C.

    Example: starter up
    """
    from client.signals import stopped
    from gateway.process import beside_worker
    from workers import logs, process

    settings = gateway_settings()
    logs.configure("warning", "console", traces=False)
    async with (
        process.stack(settings, port, ui_port) as running,
        beside_worker(running.service, settings, running.ui) as api,
    ):
        stop = stopped()
        terminal.story(f"Ratchet is up. Its data is in {settings.home}/", "bold green")
        terminal.story(f"  Temporal  {running.address}\n  Web UI    {running.ui}\n  HTTP API  {running.http}")
        terminal.story(f"  Gateway   {api}/docs")
        terminal.story(f"  try       {terminal.command('starter mci create default/web -f examples/mci-demo.yaml')}")
        terminal.story("  stop      Ctrl-C here; what runs goes on at the next start")
        await stop.wait()
        terminal.story("stopping")
    return Exit.DONE


async def worker(
    *,
    queues: Annotated[str, Parameter(help="Which queues, separated by commas; all by default.")] = "",
) -> Exit:
    """Run a worker until SIGTERM or SIGINT, then drain it. It logs JSON to stderr.

    Example: starter worker --queues actions,cloud-gcp
    """
    from workers import process

    settings = worker_settings()
    chosen = process.checked_queues(settings, [word.strip() for word in queues.split(",") if word.strip()])
    async with session() as asking:  # fail early with our own error if there is no server or no such namespace
        await check_namespace(asking)
    await process.work(settings, chosen)
    return Exit.DONE


def worker_settings() -> Settings:
    """Reads a worker's settings from the environment, or raises Refused."""
    from client.settings import load
    from workers.settings import Settings

    return load(Settings)


async def check_namespace(asking: ActionClient) -> None:
    """Refuses a namespace that does not exist: a worker would crash there."""
    from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest

    request = DescribeNamespaceRequest(namespace=asking.client.namespace)
    await asking.client.workflow_service.describe_namespace(request)


async def migrate(*, restored: RestoredOption = False) -> Exit:
    """Migrate the store that RATCHET_STORE_URL names to this version's schema.

    Example: starter migrate
    Example: starter migrate --restored
    """
    from workers.process import migrate_store, restored_store
    from workers.settings import redacted

    settings = worker_settings()
    before, after = migrate_store(settings)
    done = f"is at schema {after} already" if before == after else f"went from schema {before or 'none'} to {after}"
    terminal.story(f"{redacted(settings.store())} {done}")
    if restored:
        incarnation, ended = restored_store(settings)
        terminal.story(f"this is incarnation {incarnation} of the store; runs that started before now are refused")
        terminal.story(
            f"{ended} {'action was' if ended == 1 else 'actions were'} open in the backup: ended as abandoned"
        )
        terminal.story("next: start the workers; then starter heal, and starter verify")
    return Exit.DONE


async def setup(*, forget_store: ForgetOption = False) -> Exit:
    """Register our search attributes on a Temporal cluster. Existing ones stay.

    Example: TEMPORAL_ADDRESS=temporal.example.com:7233 starter setup
    """
    async with session() as asking:
        if forget_store:
            from client.identity import forget

            known = await forget(asking.client)
            told = "forgot which store its workers use; the next one to start tells anew" if known else "knew no store"
            terminal.story(f"namespace {asking.client.namespace} {told}")
        missing = await missing_attributes(asking)
        if missing:
            await _register(asking, missing)
    told = f"registered {', '.join(missing)}" if missing else "all search attributes are registered already"
    terminal.story(f"{told} (namespace {asking.client.namespace})")
    return Exit.DONE


async def missing_attributes(asking: ActionClient) -> list[str]:
    """Returns our search attributes that the namespace lacks."""
    known = await _registered(asking)
    return [name for name in wire.SEARCH_ATTRIBUTES if name not in known]


async def mistyped_attributes(asking: ActionClient) -> list[str]:
    """Returns our search attributes that are registered with another type."""
    known = await _registered(asking)
    return [name for name, kind in attribute_types().items() if name in known and known[name] != kind]


def attribute_types() -> dict[str, IndexedValueType.ValueType]:
    """Returns our search attributes with Temporal's enum values for their types."""
    from temporalio.api.enums.v1 import IndexedValueType

    types = {
        "Keyword": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
        "KeywordList": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD_LIST,
        "Int": IndexedValueType.INDEXED_VALUE_TYPE_INT,
    }
    return {name: types[kind] for name, kind in wire.SEARCH_ATTRIBUTES.items()}


async def _registered(asking: ActionClient) -> Mapping[str, IndexedValueType.ValueType]:
    from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest

    request = ListSearchAttributesRequest(namespace=asking.client.namespace)
    return (await asking.client.operator_service.list_search_attributes(request)).custom_attributes


async def _register(asking: ActionClient, names: list[str]) -> None:
    from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest

    types = attribute_types()
    wanted = {name: types[name] for name in names}
    request = AddSearchAttributesRequest(namespace=asking.client.namespace, search_attributes=wanted)
    await asking.client.operator_service.add_search_attributes(request)
