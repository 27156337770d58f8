"""`starter up`, `worker`, `migrate`, `setup`: the embedded stack, a worker, the schema, the search attributes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from domain import wire
from starter import reads, terminal
from starter.errors import ExitCode
from starter.gateway import gateway_settings
from starter.session import open_client

if TYPE_CHECKING:
    from temporalio.api.enums.v1 import IndexedValueType

    from client.actions import ActionClient
    from workers.settings import WorkerSettings

ServerPort = Annotated[int, Parameter(help="0 is the usual port, or any free one.")]
ForgetOption = Annotated[
    bool, Parameter(negative="", help="Forget which store this namespace's workers use, because it is lost.")
]
RestoredOption = Annotated[
    bool, Parameter(negative="", help="The store comes from a backup: end what was open in it, refuse all older runs.")
]


async def up(*, port: ServerPort = 0, ui_port: ServerPort = 0) -> ExitCode:
    """Run everything here: a Temporal server and a worker, with their data in .ratchet/, until Ctrl-C.

    Example: starter up
    """
    from client.stopsignals import make_stop_event
    from gateway.process import serve_in_worker_process
    from workers import logs, process

    settings = gateway_settings()
    logs.configure_logging("warning", "console", traces=False)
    async with (
        process.run_stack(settings, port, ui_port) as running,
        serve_in_worker_process(running.service, settings, running.ui, reads.read_status_data) as api,
    ):
        stop = make_stop_event()
        terminal.print_narration(f"Ratchet is up. Its data is in {settings.home}/", "bold green")
        terminal.print_narration(f"  Temporal  {running.address}\n  Web UI    {running.ui}\n  HTTP API  {running.http}")
        terminal.print_narration(f"  Gateway   {api}/docs")
        terminal.print_narration(
            f"  try       {terminal.rewrite_commands('starter mci create default/web -f examples/mci-demo.yaml')}"
        )
        terminal.print_narration("  stop      Ctrl-C here; what runs goes on at the next start")
        await stop.wait()
        terminal.print_narration("stopping")
    return ExitCode.DONE


async def worker(
    *,
    queues: Annotated[str, Parameter(help="Which queues, separated by commas; all by default.")] = "",
    node: Annotated[
        str, Parameter(help="Which nodes of the hypervisor this host is, separated by commas; all by default.")
    ] = "",
) -> ExitCode:
    """Run a worker until SIGTERM or SIGINT, then drain it. It logs JSON to stderr.

    Example: starter worker --queues actions,cloud-gcp
    """
    from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest

    from workers import process
    from workers.settings import split_words

    settings = worker_settings()
    if node:
        settings = settings.model_copy(update={"nodes": tuple(split_words(node))})
    chosen = process.validate_queues(settings, split_words(queues))
    async with open_client() as client:  # fail early with our own error if there is no server or no such namespace
        await client.client.workflow_service.describe_namespace(
            DescribeNamespaceRequest(namespace=client.client.namespace)
        )
    await process.run_worker(settings, chosen)
    return ExitCode.DONE


def worker_settings() -> WorkerSettings:
    """Reads a worker's settings from the environment, or raises Refused."""
    from client.settings import load_settings
    from workers.settings import WorkerSettings

    return load_settings(WorkerSettings)


async def migrate(*, restored: RestoredOption = False) -> ExitCode:
    """Migrate the store that RATCHET_STORE_URL names to this version's schema.

    Example: starter migrate
    Example: starter migrate --restored
    """
    from workers.process import mark_store_restored, migrate_store
    from workers.settings import redact_url

    settings = worker_settings()
    before, after = migrate_store(settings)
    done = f"is at schema {after} already" if before == after else f"went from schema {before or 'none'} to {after}"
    terminal.print_narration(f"{redact_url(settings.store_database_url())} {done}")
    if restored:
        incarnation, ended = mark_store_restored(settings)
        terminal.print_narration(
            f"this is incarnation {incarnation} of the store; runs that started before now are refused"
        )
        terminal.print_narration(
            f"{ended} {'action was' if ended == 1 else 'actions were'} open in the backup: ended as abandoned"
        )
        terminal.print_narration(
            "next: start the workers; then starter heal, starter verify; "
            "for what the clouds did since the backup: starter mci reconcile PATH"
        )
    return ExitCode.DONE


async def setup(*, forget_store: ForgetOption = False) -> ExitCode:
    """Register our search attributes on a Temporal cluster. Existing ones stay.

    Example: TEMPORAL_ADDRESS=temporal.example.com:7233 starter setup
    """
    from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest

    async with open_client() as client:
        if forget_store:
            from client.storeregistry import forget_registered_store

            known = await forget_registered_store(client.client)
            told = "forgot which store its workers use; the next one to start tells anew" if known else "knew no store"
            terminal.print_narration(f"namespace {client.client.namespace} {told}")
        missing, _ = await compare_search_attributes(client)
        if missing:
            types = search_attribute_types()
            request = AddSearchAttributesRequest(
                namespace=client.client.namespace, search_attributes={name: types[name] for name in missing}
            )
            await client.client.operator_service.add_search_attributes(request)
    told = f"registered {', '.join(missing)}" if missing else "all search attributes are registered already"
    terminal.print_narration(f"{told} (namespace {client.client.namespace})")
    return ExitCode.DONE


async def compare_search_attributes(client: ActionClient) -> tuple[list[str], list[str]]:
    """Returns our search attributes that the namespace lacks, and those that it has with another type."""
    from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest

    request = ListSearchAttributesRequest(namespace=client.client.namespace)
    known = (await client.client.operator_service.list_search_attributes(request)).custom_attributes
    wanted = search_attribute_types()
    missing = [name for name in wanted if name not in known]
    return missing, [name for name, kind in wanted.items() if name in known and known[name] != kind]


def search_attribute_types() -> dict[str, IndexedValueType.ValueType]:
    """Returns our search attributes with Temporal's enum values for their types."""
    from temporalio.api.enums.v1 import IndexedValueType

    types = {
        "Keyword": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
        "KeywordList": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD_LIST,
        "Int": IndexedValueType.INDEXED_VALUE_TYPE_INT,
    }
    return {name: types[kind] for name, kind in wire.SEARCH_ATTRIBUTES.items()}
