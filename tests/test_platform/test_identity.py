"""One namespace, one store: a worker with another store does not start."""

from __future__ import annotations

from pathlib import Path

import pytest

from client.actions import ActionClient
from client.connection import connect_temporal
from client.storeregistry import forget_registered_store, read_registered_store, register_store
from domain.errors import Refused
from starter.doctor import _check_store
from workers import embedded
from workers.plugin import temporal_plugin
from workers.process import _run_service
from workers.settings import WorkerSettings


async def test_the_first_worker_tells_and_another_store_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "home"
    server = await embedded.start_server(home)
    client = await connect_temporal(home, temporal_plugin())
    try:
        settings = WorkerSettings(home=home, simulated_latency=0)
        assert await read_registered_store(client) is None
        async with _run_service(client, settings) as service:
            mine = await read_registered_store(client)
            assert mine
            async with service.serve_queues():
                found = await _check_store(ActionClient(client))
                assert (found.mend, f"store {mine}" in found.found) == ("", True)
        async with _run_service(client, settings):  # the same store again
            pass
        elsewhere = WorkerSettings(home=home, store_url=f"sqlite:///{tmp_path}/empty.db")
        with pytest.raises(Refused, match=f"use the store {mine}, but sqlite:///") as caught:
            async with _run_service(client, elsewhere):
                pass
        assert "RATCHET_STORE_URL" in caught.value.hint
        assert "starter setup --forget-store" in caught.value.hint
        assert await forget_registered_store(client)
        assert not await forget_registered_store(client)
        async with _run_service(client, elsewhere) as service, service.serve_queues():
            await forget_registered_store(client)
            await register_store(client, "of-others", "somewhere")
            found = await _check_store(ActionClient(client))
            assert "but the namespace's store is of-others" in found.found
            assert "--forget-store" in found.mend
    finally:
        await server.stop_server()
