"""`starter doctor`: is everything there that an action needs? If not: what, why, and how to mend it."""

from __future__ import annotations

import asyncio
import platform
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING

from domain import wire
from domain.errors import RatchetError
from domain.limits import CLOUDS
from domain.model import Query, StoreView
from starter import terminal
from starter.errors import Exit, NoWorker, problem
from starter.output import Output, OutputOption, Sheet, show
from starter.session import session
from starter.stack import missing_attributes

if TYPE_CHECKING:
    from starter.asking import Asking


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. `mend` is empty if it is well."""

    about: str
    found: str
    mend: str = ""


async def doctor(*, output: OutputOption = "table") -> Exit:
    """Look at the server, the namespace, the search attributes, the workers, the store and the versions.

    Example: starter doctor
    """
    findings = [_versions()]
    try:
        async with session() as asking:
            findings += await _examine(asking)
    except RatchetError as error:
        found = problem(error)
        findings.append(Finding("temporal", found.why, found.next))
    return _report(findings, output)


async def _examine(asking: Asking) -> list[Finding]:
    server, namespace = await _server(asking), await _namespace(asking)
    attributes, queues = await _attributes(asking), await _queues(asking)
    return [server, namespace, attributes, *queues, await _store(asking)]


def _versions() -> Finding:
    names = ("ratchet", "temporalio", "pydantic", "sqlalchemy")
    told = ", ".join(f"{name} {version(name)}" for name in names)
    return Finding("versions", f"{told}, Python {platform.python_version()}")


async def _server(asking: Asking) -> Finding:
    from temporalio.api.workflowservice.v1 import GetSystemInfoRequest

    info = await asking.client.workflow_service.get_system_info(GetSystemInfoRequest())
    return Finding("server", f"{asking.client.service_client.config.target_host}, Temporal {info.server_version}")


async def _namespace(asking: Asking) -> Finding:
    from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest

    name = asking.client.namespace
    found = await asking.client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=name))
    days = found.config.workflow_execution_retention_ttl.seconds // 86_400
    return Finding("namespace", f"{name}, keeps closed actions for {days} days")


async def _attributes(asking: Asking) -> Finding:
    missing = await missing_attributes(asking)
    if missing:
        return Finding("search attributes", f"missing: {', '.join(missing)}; no action can start", "starter setup")
    return Finding("search attributes", f"all {len(wire.SEARCH_ATTRIBUTES)} are registered")


async def _queues(asking: Asking) -> list[Finding]:
    """Who polls what; a queue without a worker is work that waits."""
    names = [wire.ACTIONS_QUEUE, *map(wire.cloud_queue, CLOUDS)]
    idle = [name for name, polled in zip(names, await _polled(asking, names), strict=True) if not polled]
    if not idle:
        return [Finding("workers", f"all {len(names)} queues are polled")]
    return [Finding("workers", f"nobody polls {name}", f"starter worker --queues {name}") for name in idle]


async def _polled(asking: Asking, names: list[str]) -> list[bool]:
    async def one(name: str) -> bool:
        try:
            await asking.someone_polls(name)  # patient: a worker that has just started is not seen at once
        except NoWorker:
            return False
        return True

    return await asyncio.gather(*map(one, names))


async def _store(asking: Asking) -> Finding:
    """The store as a worker sees it: we have no address of it, and no credential."""
    try:
        seen = await asking.read(wire.READ_STORE, Query(), StoreView)
    except RatchetError as error:
        found = problem(error)
        return Finding("store", f"{found.what}: {found.why}", found.next)
    if seen.version != seen.newest:
        found_version = seen.version or "none"
        return Finding("store", f"{seen.url} has schema {found_version}, not {seen.newest}", "starter migrate")
    return Finding("store", f"{seen.url}, schema {seen.version}")


def _report(findings: list[Finding], output: Output) -> Exit:
    lines = [("wrong" if each.mend else "ok", each.about, each.found) for each in findings]
    show(
        Sheet([asdict(each) for each in findings], ("STATE", "WHAT", "FOUND"), lines, [f.about for f in findings]),
        output,
    )
    ill = [each for each in findings if each.mend]
    for each in ill:
        terminal.say(f"{each.about}: {each.found}", "red")
        terminal.say(f"  hint: {terminal.command(each.mend)}")
    return Exit.UNREACHABLE if ill else Exit.DONE
