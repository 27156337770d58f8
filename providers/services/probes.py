"""Health checks of an instance by HTTP, TCP or command, on the loopback, with a timeout."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from domain.services.definition import HealthCheck
from providers.services.proxy import LOOPBACK, InstanceRoute, connect_to_route

# Of the kernel: established, opening either way, closed by the peer.
_CONNECTED_SOCKET_STATES = {"01", "02", "03", "08"}


async def check_health(health: HealthCheck, route: InstanceRoute) -> str:
    """Checks an instance's health by HTTP or TCP. Returns an empty string if it is healthy, else the reason."""
    try:
        async with asyncio.timeout(health.timeout):
            if health.http is not None:
                return await _check_http(health.http, route)
            _, writer = await connect_to_route(route)
            writer.close()
            return ""
    except TimeoutError:
        return f"no answer within {health.timeout:g} s"
    except OSError as error:
        return error.strerror or type(error).__name__


async def _check_http(path: str, route: InstanceRoute) -> str:
    reader, writer = await connect_to_route(route)
    try:
        writer.write(f"GET {path} HTTP/1.0\r\nHost: {LOOPBACK}\r\nConnection: close\r\n\r\n".encode())
        answer = (await reader.readline()).decode("latin-1").split()
    except ValueError:  # a line longer than the reader's buffer
        return "no answer in HTTP: its first line does not end"
    finally:
        writer.close()
    if len(answer) < 2 or not answer[1].isdecimal():
        return "no answer in HTTP"
    return "" if 200 <= int(answer[1]) < 400 else f"HTTP {answer[1]}"


async def check_health_by_command(health: HealthCheck, launcher: Sequence[str], order: bytes) -> str:
    """Checks an instance's health by a command, which the launcher confines as it does the instance."""
    process = await asyncio.create_subprocess_exec(
        *launcher,
        "1",  # it reports to stdout why the command cannot run
        env={},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(health.timeout):
            await process.communicate(order)
    except TimeoutError:
        return f"no answer within {health.timeout:g} s"
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    return "" if process.returncode == 0 else f"the check ended with exit code {process.returncode}"


def count_connections(route: InstanceRoute) -> int:
    """Returns how many connections to an instance are open or opening."""
    return sum(state in _CONNECTED_SOCKET_STATES for state, _ in _list_sockets(route))


def check_listening(port: int, pid: int) -> str:
    """Returns an empty string if this very process listens on the port, else the reason."""
    listening = {name for state, name in _list_sockets(InstanceRoute(port)) if state == "0A"}
    if not listening:
        return f"no process listens on port {port}"
    return "" if listening & _open_files(pid) else f"port {port} is taken by another process"


def _list_sockets(route: InstanceRoute) -> list[tuple[str, str]]:
    """Returns the kernel's state and name of all sockets at a local port, in the network that the route leads to."""
    found: list[tuple[str, str]] = []
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            text = Path(f"/proc/{route.pid or 'self'}/net/{table}").read_text()
            rows = [line.split() for line in text.splitlines()[1:]]
            found += [
                (row[3], f"socket:[{row[9]}]") for row in rows if int(row[1].rpartition(":")[2], 16) == route.port
            ]
    return found


def _open_files(pid: int) -> set[str]:
    """Returns the names of the files and sockets that a process has open; fewer while it ends."""
    found: set[str] = set()
    with suppress(OSError):
        for file in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                found.add(os.readlink(file))
    return found
