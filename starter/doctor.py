"""`starter doctor`: checks everything that an action needs; says what is wrong, why, and how to correct it."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Callable
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from client.errors import NotPromoted, NoWorker
from domain import wire
from domain.connections import Connections
from domain.errors import RatchetError, format_count
from domain.model import ReadQuery, StoreView
from domain.nodecalls import node_of_queue
from domain.requests import AccessQuery, AccessView
from starter.checks import DoctorCheck, failed_check, print_checks, run_check
from starter.connections import read_connections
from starter.errors import ExitCode, to_printed_error
from starter.flags import OutputOption
from starter.session import open_client
from starter.stack import compare_search_attributes, worker_settings

if TYPE_CHECKING:
    from client.actions import ActionClient

POLL_SECONDS = 90.0  # a live worker polls at least once a minute
RETENTION_DAYS = 7  # the Web UI shows no action that ended before
STOPPED_SHOWN = 20  # actions that are paused, or no actions of ours
READ_SECONDS = 10.0  # a healthy worker answers in that time
DATA_FOLDER = "data folder"


Security = Annotated[
    bool, Parameter(negative="", help="Check instead whether this machine's settings keep others out; 1 if not.")
]


async def doctor(*, security: Security = False, output: OutputOption = "table") -> ExitCode:
    """Check the settings and files, the server and its configuration, the workers, the store, and real clouds.

    Exits with 0 if all is well, with 5 if something is wrong: each finding has a hint.

    Example: starter doctor
    """
    if security:
        from starter.security import check_security

        return print_checks(check_security(), output, "missing", ExitCode.FAILED)
    findings = [_check_versions()]
    try:
        findings += _check_settings()
        async with open_client() as client:
            await _run_checks(client, findings)
    except RatchetError as error:
        findings.append(failed_check("temporal", error))
    return print_checks(findings, output)


async def _run_checks(client: ActionClient, findings: list[DoctorCheck]) -> None:
    """Appends each check to `findings`, so that an error halfway loses none of them."""
    findings.append(await _check_server(client))
    findings.append(await _check_namespace(client))
    findings.append(await _check_search_attributes(client))
    names = _expected_queues()
    queues, builds = await _check_queues(client, names), await _check_builds(client)
    findings += [*queues, *await _check_workers_serve_same_clouds(client, names), *builds]
    findings += await _check_stopped_runs(client)
    if not any(build.mend for build in builds):  # else no worker would get the query
        findings.append(await _check_store(client))
        if not findings[-1].mend:
            findings += [await _check_names_proven(client), *await _check_clouds(client)]


def _check_settings() -> list[DoctorCheck]:
    """Checks the settings of this process; those of the workers cannot be seen from here."""
    from client import encryption
    from workers import access, connections, crm, datafolder, process

    try:
        settings = worker_settings()
    except RatchetError as error:
        return [failed_check("settings", error)]

    def credentials() -> None:
        connections.check_connections(settings.connections, process.validate_queues(settings))

    looks: list[tuple[str, object, Callable[[], object]]] = [
        (DATA_FOLDER, settings.home.is_dir(), lambda: datafolder.check_data_folder(settings.home)),
        ("policy", settings.policy_file, lambda: access.load_policy(settings.policy_file)),
        ("identities", settings.identities, lambda: access.load_identities(settings.identities)),
        ("keys", settings.keys_file, lambda: encryption.load_keys(settings.keys_file)),
        ("connections", settings.connections, credentials),
        ("CRM's token", settings.crm_token_file, lambda: crm.token_of_cloudlet(settings, "").public_key()),
        ("store from here", settings.store_url, lambda: process.check_store(settings)),
    ]
    checks = [run_check(about, look, "as it should be") for about, given, look in looks if given]
    return [check for check in checks if check.mend or check.about != DATA_FOLDER]  # it is worth no line


def _check_versions() -> DoctorCheck:
    names = ("ratchet", "temporalio", "pydantic", "sqlalchemy")
    told = ", ".join(f"{name} {version(name)}" for name in names)
    return DoctorCheck("versions", f"{told}, Python {platform.python_version()}")


async def _check_server(client: ActionClient) -> DoctorCheck:
    from temporalio.api.workflowservice.v1 import GetSystemInfoRequest

    info = await client.client.workflow_service.get_system_info(GetSystemInfoRequest())
    return DoctorCheck("server", f"{client.client.service_client.config.target_host}, Temporal {info.server_version}")


async def _check_namespace(client: ActionClient) -> DoctorCheck:
    from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest

    name = client.client.namespace
    found = await client.client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=name))
    days = found.config.workflow_execution_retention_ttl.seconds // 86_400
    told = f"{name}, keeps closed actions for {format_count(days, 'day')}"
    if days >= RETENTION_DAYS:
        return DoctorCheck("namespace", told)
    why = f"{told}: too short to look at what went wrong last week"
    return DoctorCheck("namespace", why, f"temporal operator namespace update --namespace {name} --retention 90d")


async def _check_search_attributes(client: ActionClient) -> DoctorCheck:
    missing, wrong = await compare_search_attributes(client)
    if wrong:
        told = ", ".join(f"{name} should be {wire.SEARCH_ATTRIBUTES[name]}" for name in wrong)
        mend = f"remove it: temporal operator search-attribute remove --name {wrong[0]}; then: starter setup"
        return DoctorCheck("search attributes", f"of another type: {told}", mend)
    if missing:
        return DoctorCheck("search attributes", f"missing: {', '.join(missing)}; no action can start", "starter setup")
    return DoctorCheck("search attributes", f"all {len(wire.SEARCH_ATTRIBUTES)} are registered")


def _expected_queues() -> list[str]:
    """Returns the queues that workers should poll, by this process's connections file; its errors are another check."""
    from workers import connections
    from workers.service import all_queues
    from workers.settings import WorkerSettings

    try:
        settings = worker_settings()
        return all_queues(connections.load_connections(settings.connections), settings)
    except RatchetError:
        return all_queues(Connections(), WorkerSettings.model_construct())


async def _check_queues(client: ActionClient, names: list[str]) -> list[DoctorCheck]:
    """Checks that each queue has a worker: work waits on a queue without one."""
    idle = [name for name, polled in zip(names, await _are_polled(client, names), strict=True) if not polled]
    if not idle:
        return [DoctorCheck("workers", f"all {len(names)} queues are polled")]
    nodes = [node for name in idle if (node := node_of_queue(name))]
    checks = [
        DoctorCheck("nodes", f"no worker serves the node {node}", f"on its host: starter worker --node {node}")
        for node in nodes
    ]
    if queues := [name for name in idle if not node_of_queue(name)]:
        mend = "starter worker" if idle == names else f"starter worker --queues {','.join(queues)}"
        checks.append(DoctorCheck("workers", f"nobody polls {', '.join(queues)}", mend))
    return checks


async def _check_workers_serve_same_clouds(client: ActionClient, names: list[str]) -> list[DoctorCheck]:
    """Finds workers that serve different clouds under one name: one would not find the VMs of the other."""
    named = await asyncio.gather(*(client.read_poller_identities(queue, POLL_SECONDS) for queue in names))
    told = {
        identity: wire.served_clouds_of(identity)
        for some in named
        for identity in some
        if wire.served_clouds_of(identity)
    }
    if len(set(told.values())) < 2:
        return []
    differing = "; ".join(f"{identity.partition('/')[0]} serves {clouds}" for identity, clouds in sorted(told.items()))
    mend = "start every worker with the same RATCHET_CONNECTIONS; one that has stopped is forgotten in a minute or two"
    return [DoctorCheck("workers", f"they do not serve the same clouds: {differing}", mend)]


async def _are_polled(client: ActionClient, names: list[str]) -> list[bool]:
    async def one(name: str) -> bool:
        try:
            await client.check_polled(name)  # wait a little: Temporal lists a new worker only after a while
        except NoWorker:
            return False
        except NotPromoted:
            return True  # the check of builds names it
        return True

    return await asyncio.gather(*map(one, names))


async def _check_builds(client: ActionClient) -> list[DoctorCheck]:
    """Checks that a build of versioned workers is current: else they get no new actions."""
    from temporalio.api.workflowservice.v1 import ListWorkerDeploymentsRequest

    request = ListWorkerDeploymentsRequest(namespace=client.client.namespace)
    found = []
    for deployment in (await client.client.workflow_service.list_worker_deployments(request)).worker_deployments:
        current = deployment.routing_config.current_deployment_version.build_id
        latest = deployment.latest_version_summary.deployment_version.build_id or "BUILD"  # not known yet
        mend = "" if current else f"RATCHET_DEPLOYMENT={deployment.name} starter build promote {latest}"
        told = f"new actions begin on {current}" if current else "no build is current: nothing new can begin"
        found.append(DoctorCheck("builds", f"{deployment.name}: {told}", mend))
        found += await _check_deserted_builds(client, deployment.name)
    return found


async def _check_deserted_builds(client: ActionClient, deployment: str) -> list[DoctorCheck]:
    """Finds builds without workers to which open actions are pinned: they wait until there is one."""
    from client.builds import list_builds

    return [
        DoctorCheck(
            "builds",
            f"{deployment}: build {each.build} has no worker, but {format_count(each.pinned, 'open action')} pinned",
            f"RATCHET_DEPLOYMENT={deployment} RATCHET_BUILD={each.build} starter worker",
        )
        for each in await list_builds(client.client, deployment)
        if each.is_deserted
    ]


async def _check_stopped_runs(client: ActionClient) -> list[DoctorCheck]:
    """Finds actions that are paused in Temporal, and workflows of strangers that hold an object's ID."""
    from client.runs import find_stuck_runs

    return [
        DoctorCheck("action", f"{run.action} on {run.path}: {why}", hint)
        for run in await find_stuck_runs(client.client, STOPPED_SHOWN)
        for why, hint in (run.describe_obstacle(),)
    ]


async def _check_names_proven(client: ActionClient) -> DoctorCheck:
    """Tells whether the workers want names to be proven."""
    try:
        seen = await client.run_query(wire.READ_ACCESS, AccessQuery(), AccessView, seconds=READ_SECONDS)
    except RatchetError as error:
        return failed_check("names", error)
    if seen.proven:
        return DoctorCheck("names", f"{seen.name} is proven by a key")
    return DoctorCheck(
        "names", f"{seen.name or 'nobody'} is claimed, not proven: the workers have no RATCHET_IDENTITIES"
    )


async def _check_store(client: ActionClient) -> DoctorCheck:
    """Checks the store through a worker: the CLI has neither its address nor a credential."""
    from temporalio.service import RPCError

    from client.connect_errors import to_unreachable
    from client.storeregistry import read_registered_store

    try:
        seen = await client.run_query(wire.READ_STORE, ReadQuery(), StoreView, seconds=READ_SECONDS)
    except RPCError as error:
        return failed_check("reads", to_unreachable(error, client.client.namespace))
    except RatchetError as error:
        found = to_printed_error(error)
        return DoctorCheck("store", f"{found.what}: {found.why}", found.next)
    if seen.version != seen.newest:
        found_version = seen.version or "none"
        return DoctorCheck("store", f"{seen.url} has schema {found_version}, not {seen.newest}", "starter migrate")
    told = f"{seen.url}, schema {seen.version}, store {seen.id}"
    if seen.incarnation > 1:
        told += f", restored {seen.incarnation - 1} time{'s' if seen.incarnation > 2 else ''}"
    if seen.no_simulation:
        told += "; what is simulated is refused"
    if (known := await read_registered_store(client.client)) not in (None, seen.id):
        mend = "set RATCHET_STORE_URL alike on all workers; if that store is lost: starter setup --forget-store"
        return DoctorCheck("store", f"{told}; but the namespace's store is {known}", mend)
    return DoctorCheck("store", told)


async def _check_clouds(client: ActionClient) -> list[DoctorCheck]:
    """Checks each real cloud through its worker: whether it has credentials, and the cloud accepts them."""
    real = [view for view in await read_connections(client, check=True) if view.provider != "simulated"]
    mend = "correct the file, the credentials, or the network; then: starter connections --check"
    return [
        DoctorCheck(f"cloud {view.name}", view.trouble or view.answer, mend if view.trouble else "") for view in real
    ]
