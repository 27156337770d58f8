"""The embedded server: several may start at the same moment, each with its own data."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path

import pytest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client

from client.homefiles import EMBEDDED_FILE
from domain.errors import Refused
from providers.sockets import OUR_PORTS, find_free_port
from workers import embedded


async def test_servers_that_start_at_the_same_moment_do_not_take_each_others_answers(tmp_path: Path) -> None:
    homes = [tmp_path / name for name in ("a", "b", "c")]
    servers = await asyncio.gather(*map(embedded.start_server, homes))
    try:
        assert len({server.address for server in servers}) == len({server.ui for server in servers}) == 3
        assert all(server.process.returncode is None for server in servers)
        for home, server in zip(homes, servers, strict=True):
            assert json.loads((home / EMBEDDED_FILE).read_text())["pid"] == server.process.pid
            client = await Client.connect(server.address)
            kept = await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace="default"))
            assert kept.config.workflow_execution_retention_ttl.ToTimedelta().days == embedded.HISTORY_RETENTION_DAYS
    finally:
        await asyncio.gather(*(server.stop_server() for server in servers))


async def test_a_port_that_somebody_else_holds_is_said_and_nothing_stays_behind(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(Refused, match=f"port {port} is taken by another program"):
            await embedded.start_server(tmp_path, port=port)
    assert not (tmp_path / EMBEDDED_FILE).exists()


def test_a_port_of_ours_is_never_one_that_outgoing_connections_take() -> None:
    assert find_free_port() in OUR_PORTS
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert find_free_port(taken.getsockname()[1]) in OUR_PORTS
