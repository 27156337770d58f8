"""A typed client is generated from the OpenAPI document, without a warning, and leads an MCI through its life."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx

from tests.clients import generated_life
from tests.locked import install_locked
from tests.patience import PATIENCE
from tests.test_dialects.clients import ClientPrograms


async def test_a_generated_client_leads_an_mci_through_its_life(url: str, ns: str, tmp_path: Path) -> None:
    programs = await asyncio.to_thread(install_locked, "openapi", "openapi-python-client")
    document = tmp_path / "openapi.json"
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE) as http:
        document.write_text((await http.get("/openapi.json")).text)
    # The generator formats what it makes by its own ruff, which it looks for among the programs.
    tools = ClientPrograms(programs, {"PATH": str(programs), "PYTHONPATH": str(tmp_path)})
    words = ("generate", "--path", str(document), "--output-path", str(tmp_path / "ratchet_api"), "--meta", "none")
    code, out, told = await tools.run("openapi-python-client", *words)
    assert (code, "arning" in out + told) == (0, False), out + told
    code, out, told = await tools.run("python", generated_life.__file__, url, ns)
    assert (code, out) == (0, "lived\n"), told
