"""`starter demo systems`: a web shop of three real services on this machine, updated under load."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from client.errors import NoWorker
from domain.errors import Refused
from domain.model import ActionResult, Outcome
from domain.paths import build_path, short_path
from domain.systems.ports import backend_queue
from domain.systems.rules import node_path
from starter import terminal
from starter.demo import (
    POLL_SECONDS,
    demo_client,
    find_free_demo_name,
    format_elapsed_seconds,
    print_heading,
    print_next_commands,
    request_expecting_admission,
    request_expecting_refusal,
    show_statuses,
)
from starter.errors import ExitCode
from starter.kinds import read_spec_file

if TYPE_CHECKING:
    from client.actions import ActionClient, Ticket

ROOT = Path(__file__).parents[2]
SPEC = ROOT / "examples" / "system-demo.yaml"
# Settings of the demo's own stack. Elsewhere whoever runs the worker switches the backend on.
PROCESS_BACKEND = {"backends": ("simulated", "process"), "programs": (sys.executable, "/bin/sleep", "/usr/bin/sleep"),
                   "service_users": "worker"}  # fmt: skip
SWITCH_ON = "start it with: RATCHET_BACKENDS=simulated,process RATCHET_PROGRAMS=/usr/bin/python3 starter up"
DEMO_TIMEOUT = 60
NEXT_COMMANDS = (
    "RATCHET_BACKENDS=simulated,process RATCHET_PROGRAMS=/usr/bin/python3 starter up",
    "starter system create shop --backend process",
    "starter system deploy shop -f examples/system-demo.yaml",
    "starter system graph shop",
    "starter system deploys shop",
)


async def systems() -> ExitCode:
    """Runs the demo: deploys, updates under load, loses a process, rolls back a failure, tears down."""
    async with demo_client(**PROCESS_BACKEND) as client:
        await _check_process_backend(client)
        demo = SystemDemo(
            client, build_path(("system",), [await find_free_demo_name(client, "system")]), _demo_definition()
        )
        terminal.print_narration(f"\nThree services, real processes of this machine, one system: {demo.path}")
        try:
            for play in (
                demo.create_system,
                demo.deploy_system,
                demo.update_under_load,
                demo.lose_process,
                demo.fail_deploy,
                demo.tear_down_system,
            ):
                await play()
        except DemoFailed as failure:
            terminal.print_narration(f"   {failure}", "bold red")
            return ExitCode.FAILED
        finally:
            with suppress(Refused):
                await demo.run_action("/", "delete", None, quiet=True)
        print_next_commands(NEXT_COMMANDS, "Done, and deleted. What to try next in this folder:")
    return ExitCode.DONE


async def _check_process_backend(client: ActionClient) -> None:
    """Refuses if no worker runs processes: that is switched on where the worker is started."""
    try:
        await client.check_polled(backend_queue("process"))
    except NoWorker as error:
        raise NoWorker(backend_queue("process"), SWITCH_ON) from error


class DemoFailed(Exception):
    """A step of the demo did not end as it should."""


@dataclass
class SystemDemo:
    """The steps of the demo, and their common state."""

    client: ActionClient
    path: str
    definition: dict[str, Any]
    port: int = field(init=False)

    def __post_init__(self) -> None:
        self.port = self.definition["parts"][0]["port"]

    async def create_system(self) -> None:
        print_heading(1, "create", "a system on the process backend, with no services yet")
        await self.run_action("/", "create", {"backend": "process"})

    async def deploy_system(self) -> None:
        print_heading(2, "deploy /", "each service after those it needs; stable when all are healthy")
        await self.run_action("/", "deploy", {"definition": self.definition})
        terminal.print_narration(f"   curl http://127.0.0.1:{self.port}/")
        terminal.print_narration(f"   {(await _get_page(self.port)).decode().splitlines()[-1]}", "cyan")

    async def update_under_load(self) -> None:
        print_heading(3, "deploy /back/api", "a new version under load, while somebody wants to tear everything down")
        async with _generate_load(self.port) as seen:
            ticket = await self.request_action("/back/api", "deploy", {"definition": self._api_definition("2")})
            wrong = "the teardown was let in while the deploy was running"
            await request_expecting_refusal(self.client, self.path, "teardown", wrong, "early")
            await self.show_states(ticket, ActionResult.SUCCEEDED)
        versions = ", ".join(f"{number} by version {version}" for version, number in sorted(seen.items()) if version)
        terminal.print_narration(
            f"   requests  {versions}; dropped: {seen['']}", "bold green" if not seen[""] else "bold red"
        )
        if seen[""]:
            raise DemoFailed("requests were dropped")

    async def lose_process(self) -> None:
        print_heading(4, "kill -9", "one of the two processes of /web dies; nobody asked for anything")
        began = time.monotonic()
        web = node_path(self.path, "/web")
        seen = (await self.client.read_history(web, 1))[-1].seq
        os.kill(await asyncio.to_thread(self._pid_of_service, "web"), signal.SIGKILL)
        states: list[str] = []
        async with asyncio.timeout(DEMO_TIMEOUT):
            while states[-1:] != ["stable"] or "degraded" not in states:  # by its history: each may last a moment only
                for line in await self.client.read_history(web):
                    if line.seq > seen and line.source != line.to:
                        terminal.print_narration(f"   {format_elapsed_seconds(began)}  {line.to}")
                        states.append(line.to)
                    seen = max(seen, line.seq)
                await asyncio.sleep(POLL_SECONDS / 4)

    async def fail_deploy(self) -> None:
        print_heading(
            5, "deploy /back/api --rollback-on-failure", "a version that never answers: its deadline is 3 seconds"
        )
        broken = {**self._api_definition("3"), "command": ["sleep", "1000"]}
        ticket = await self.request_action(
            "/back/api", "deploy", {"definition": broken, "deadline": 3, "rollback": True}
        )
        outcome = await self.show_states(ticket, ActionResult.FAILED)
        terminal.print_narration(f"   {outcome.message}", "yellow")
        terminal.print_narration(f"   {(await _get_page(self.port)).decode().splitlines()[-1]}", "cyan")

    async def tear_down_system(self) -> None:
        print_heading(6, "teardown", "every process ends in good order; the system stays until it is deleted")
        await self.run_action("/", "teardown", None)

    def _api_definition(self, version: str) -> dict[str, Any]:
        api = next(part for part in self.definition["parts"][1]["parts"] if part["name"] == "api")
        return {**api, "environment": {**api["environment"], "VERSION": version}}

    def _pid_of_service(self, name: str) -> int:
        """Returns the pid of a process of a service."""
        mark = f"RATCHET_SERVICE={node_path(self.path, f'/{name}')}".encode()
        for folder in Path("/proc").iterdir():
            with suppress(OSError):
                known = (folder / "environ").read_bytes().split(b"\0")
                if mark in known and any(word.startswith(b"PORT=") for word in known):
                    return int(folder.name)
        raise DemoFailed(f"no process of {name} runs on this machine")

    async def run_action(self, tree: str, action: str, spec: dict[str, Any] | None, quiet: bool = False) -> None:
        await self.show_states(await self.request_action(tree, action, spec), ActionResult.SUCCEEDED, quiet)

    async def request_action(self, tree: str, action: str, spec: dict[str, Any] | None) -> Ticket:
        return await request_expecting_admission(self.client, node_path(self.path, tree), action, spec)

    async def show_states(self, ticket: Ticket, wanted: ActionResult, quiet: bool = False) -> Outcome:
        """Prints the states as they change until the action ends; fails if its result is not the wanted one."""
        outcome = await show_statuses(
            self.client, ticket, wanted, _print_nothing if quiet else terminal.print_narration
        )
        if outcome.result is not wanted:
            raise DemoFailed(f"{outcome.action} of {short_path(outcome.path)} {outcome.result}: {outcome.message}")
        return outcome


def _print_nothing(_text: str, _style: str) -> None:
    pass


@asynccontextmanager
async def _generate_load(port: int) -> AsyncIterator[Counter[str]]:
    """Sends requests all the time, and counts the answers by version of the api; "" counts failures."""
    seen: Counter[str] = Counter()
    enough = asyncio.Event()

    async def send_load() -> None:
        while not enough.is_set():
            seen[_version_in_page(await _get_page(port))] += 1
            await asyncio.sleep(0.01)

    tasks = [asyncio.create_task(send_load()) for _ in range(4)]
    try:
        yield seen
    finally:
        enough.set()
        await asyncio.gather(*tasks)


async def _get_page(port: int) -> bytes:
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        answer = await reader.read()
        writer.close()
        return answer
    except OSError:
        return b""


def _version_in_page(answer: bytes) -> str:
    text = answer.decode("latin-1")
    return text.partition('"name": "api", "version": "')[2].partition('"')[0] if "200 OK" in text else ""


def _demo_definition() -> dict[str, Any]:
    """Returns the example's definition with free ports and absolute directories."""
    from workers.embedded import find_free_port

    found = read_spec_file(str(SPEC)) or {}
    ports: dict[str, str] = {}
    services = [part for part in _all_nodes(found) if "port" in part]
    for part in services:
        ports[str(part["port"])] = str(find_free_port())
        part["port"], part["directory"] = int(ports[str(part["port"])]), str(ROOT)
        part["command"] = [sys.executable, *part["command"][1:]]
    for part in services:
        told = part["environment"]
        told.update({"BEHIND": ports[told["BEHIND"]]} if "BEHIND" in told else {})
    return found


def _all_nodes(node: dict[str, Any]) -> list[dict[str, Any]]:
    return [node, *(each for part in node.get("parts", ()) for each in _all_nodes(part))]
