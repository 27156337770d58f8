"""One namespace, one store: a worker with another store does not start."""

from __future__ import annotations

from pathlib import Path

import pytest

from client.actions import ActionClient
from client.connection import connect_temporal
from client.identity import agree, forget, known_store
from domain.errors import Refused
from starter.doctor import _store
from workers import embedded
from workers.plugin import plugin
from workers.process import _service
from workers.settings import Settings


async def test_the_first_worker_tells_and_another_store_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "home"
    server = await embedded.start(home)
    client = await connect_temporal(home, plugin())
    try:
        settings = Settings(home=home, simulated_latency=0)
        assert await known_store(client) is None
        async with _service(client, settings) as service:
            mine = await known_store(client)
            assert mine
            async with service.serve():
                found = await _store(ActionClient(client))
                assert (found.mend, f"store {mine}" in found.found) == ("", True)
        async with _service(client, settings):  # the same store again
            pass
        elsewhere = Settings(home=home, store_url=f"sqlite:///{tmp_path}/empty.db")
        with pytest.raises(Refused, match=f"use the store {mine}, but sqlite:///") as caught:
            async with _service(client, elsewhere):
                pass
        assert "RATCHET_STORE_URL" in caught.value.hint
        assert "starter setup --forget-store" in caught.value.hint
        assert await forget(client)
        assert not await forget(client)
        async with _service(client, elsewhere) as service, service.serve():
            await forget(client)
            await agree(client, "of-others", "somewhere")
            found = await _store(ActionClient(client))
            assert "but the namespace's store is of-others" in found.found
            assert "--forget-store" in found.mend
    finally:
        await server.stop()
