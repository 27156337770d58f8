"""`starter demo systems`: a web shop of three real services on this machine, updated under load."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from domain import wire
from domain.errors import Refused
from domain.model import ObjectView, Outcome, Query, Result
from domain.paths import make, short
from domain.systems.rules import at
from starter import terminal
from starter.demo import GLANCE, admitted, clock, free_name, heading, refused, see, somewhere, what_next
from starter.errors import Exit
from starter.kinds import spec_in
from starter.progress import changes

if TYPE_CHECKING:
    from client.actions import ActionClient, Ticket

ROOT = Path(__file__).parents[2]
SPEC = ROOT / "examples" / "system-demo.yaml"
NEXT = (
    "starter system create shop --backend process",
    "starter system deploy shop -f examples/system-demo.yaml",
    "starter system graph shop",
    "starter system deploys shop",
)


async def systems() -> Exit:
    """Runs the demo: deploys, updates under load, loses a process, rolls back a failure, tears down."""
    async with somewhere() as asking:
        demo = Demo(asking, make(("system",), [await free_name(asking, "system")]), _definition())
        terminal.story(f"\nThree services, real processes of this machine, one system: {demo.path}")
        try:
            for play in (demo.create, demo.deploy, demo.update, demo.lose, demo.fail, demo.tear_down):
                await play()
        except Failure as failure:
            terminal.story(f"   {failure}", "bold red")
            return Exit.FAILED
        finally:
            with suppress(Refused):
                await demo.act("/", "delete", None, quiet=True)
        what_next(NEXT, "Done, and deleted. What to try next, with `starter up` running in this folder:")
    return Exit.DONE


class Failure(Exception):
    """A step of the demo did not end as it should."""


@dataclass
class Demo:
    """The steps of the demo, and their common state."""

    asking: ActionClient
    path: str
    definition: dict[str, Any]
    port: int = field(init=False)

    def __post_init__(self) -> None:
        self.port = self.definition["parts"][0]["port"]

    async def create(self) -> None:
        heading(1, "create", "a system on the process backend, with no services yet")
        await self.act("/", "create", {"backend": "process"})

    async def deploy(self) -> None:
        heading(2, "deploy /", "each service after those it needs; stable when all are healthy")
        await self.act("/", "deploy", {"definition": self.definition})
        terminal.story(f"   curl http://127.0.0.1:{self.port}/")
        terminal.story(f"   {(await _get(self.port)).decode().splitlines()[-1]}", "cyan")

    async def update(self) -> None:
        heading(3, "deploy /back/api", "a new version under load, while somebody wants to tear everything down")
        async with _load(self.port) as seen:
            ticket = await self.ask("/back/api", "deploy", {"definition": self._api("2")})
            wrong = "the teardown was let in while the deploy was running"
            await refused(self.asking, self.path, "teardown", wrong, "early")
            await self.see(ticket, Result.SUCCEEDED)
        versions = ", ".join(f"{number} by version {version}" for version, number in sorted(seen.items()) if version)
        terminal.story(f"   requests  {versions}; dropped: {seen['']}", "bold green" if not seen[""] else "bold red")
        if seen[""]:
            raise Failure("requests were dropped")

    async def lose(self) -> None:
        heading(4, "kill -9", "one of the two processes of /web dies; nobody asked for anything")
        began = time.monotonic()
        states: list[str] = []
        os.kill(await asyncio.to_thread(self._process, "web"), signal.SIGKILL)
        tell = changes(lambda text: terminal.story(f"   {clock(began)}  {text}"))
        async with asyncio.timeout(30):
            while states[-1:] != ["stable"] or "degraded" not in states:
                states.append((await self.view(self.path)).status)
                tell(states[-1])
                await asyncio.sleep(GLANCE / 4)

    async def fail(self) -> None:
        heading(5, "deploy /back/api --rollback-on-failure", "a version that never answers: its deadline is 3 seconds")
        broken = {**self._api("3"), "command": ["sleep", "1000"]}
        ticket = await self.ask("/back/api", "deploy", {"definition": broken, "deadline": 3, "rollback": True})
        outcome = await self.see(ticket, Result.FAILED)
        terminal.story(f"   {outcome.message}", "yellow")
        terminal.story(f"   {(await _get(self.port)).decode().splitlines()[-1]}", "cyan")

    async def tear_down(self) -> None:
        heading(6, "teardown", "every process ends in good order; the system stays until it is deleted")
        await self.act("/", "teardown", None)

    def _api(self, version: str) -> dict[str, Any]:
        api = next(part for part in self.definition["parts"][1]["parts"] if part["name"] == "api")
        return {**api, "environment": {**api["environment"], "VERSION": version}}

    def _process(self, name: str) -> int:
        """Returns the pid of a process of a service."""
        mark = f"RATCHET_SERVICE={at(self.path, f'/{name}')}".encode()
        for folder in Path("/proc").iterdir():
            with suppress(OSError):
                known = (folder / "environ").read_bytes().split(b"\0")
                if mark in known and any(word.startswith(b"PORT=") for word in known):
                    return int(folder.name)
        raise Failure(f"no process of {name} runs on this machine")

    async def act(self, tree: str, action: str, spec: dict[str, Any] | None, quiet: bool = False) -> None:
        await self.see(await self.ask(tree, action, spec), Result.SUCCEEDED, quiet)

    async def ask(self, tree: str, action: str, spec: dict[str, Any] | None) -> Ticket:
        return await admitted(self.asking, at(self.path, tree), action, spec)

    async def see(self, ticket: Ticket, wanted: Result, quiet: bool = False) -> Outcome:
        """Prints the states as they change until the action ends; fails if its result is not the wanted one."""
        outcome = await see(self.asking, ticket, wanted, _nothing if quiet else terminal.story)
        if outcome.result is not wanted:
            raise Failure(f"{outcome.action} of {short(outcome.path)} {outcome.result}: {outcome.message}")
        return outcome

    async def view(self, path: str) -> ObjectView:
        return await self.asking.read(wire.READ_OBJECT, Query(path=path), ObjectView)


def _nothing(_text: str, _style: str) -> None:
    pass


@asynccontextmanager
async def _load(port: int) -> AsyncIterator[Counter[str]]:
    """Sends requests all the time, and counts the answers by version of the api; "" counts failures."""
    seen: Counter[str] = Counter()
    enough = asyncio.Event()

    async def ask_on() -> None:
        while not enough.is_set():
            seen[_version(await _get(port))] += 1
            await asyncio.sleep(0.01)

    tasks = [asyncio.create_task(ask_on()) for _ in range(4)]
    try:
        yield seen
    finally:
        enough.set()
        await asyncio.gather(*tasks)


async def _get(port: int) -> bytes:
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        answer = await reader.read()
        writer.close()
        return answer
    except OSError:
        return b""


def _version(answer: bytes) -> str:
    text = answer.decode("latin-1")
    return text.partition('"name": "api", "version": "')[2].partition('"')[0] if "200 OK" in text else ""


def _definition() -> dict[str, Any]:
    """Returns the example's definition with free ports and absolute directories."""
    from workers.embedded import free_port

    found = spec_in(str(SPEC)) or {}
    ports: dict[str, str] = {}
    services = [part for part in _walk(found) if "port" in part]
    for part in services:
        ports[str(part["port"])] = str(free_port())
        part["port"], part["directory"] = int(ports[str(part["port"])]), str(ROOT)
    for part in services:
        told = part["environment"]
        told.update({"BEHIND": ports[told["BEHIND"]]} if "BEHIND" in told else {})
    return found


def _walk(node: dict[str, Any]) -> list[dict[str, Any]]:
    return [node, *(each for part in node.get("parts", ()) for each in _walk(part))]
