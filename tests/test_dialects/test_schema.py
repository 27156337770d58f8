"""The OpenAPI document is true: requests made from it get no server error and no answer that it does not describe."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.context import Gateway
from gateway.dialects.mounts import MOUNTS
from tests.test_dialects.clients import ClientPrograms

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance"


async def run_schemathesis(programs: Path, document: str, *more: str) -> None:
    options = ["--checks", CHECKS, "--max-examples", "2", "--phases", "examples,fuzzing", "--workers", "4"]
    code, out, told = await ClientPrograms(programs).run("schemathesis", "run", document, *options, *more, "--no-color")
    assert code == 0, out[-3000:] + told[-1000:]
    assert "Tested: " in out


async def test_every_operation_answers_as_its_document_says(programs: Path, url: str) -> None:
    quick = ["--header", "Prefer: respond-async", "--exclude-path", "/v1/events"]  # a stream has no end
    await run_schemathesis(programs, f"{url}/openapi.json", *quick)


@pytest.mark.parametrize("mount", ["/identity", "/reservation"])
async def test_a_dialect_answers_as_its_routes_say(
    programs: Path, url: str, gateway: Gateway, tmp_path: Path, mount: str
) -> None:
    """The dialects that have a route for each operation; the others take their names from the path."""
    document = tmp_path / "openapi.json"
    document.write_text(json.dumps(MOUNTS[mount](gateway).openapi()))
    await run_schemathesis(programs, str(document), "--url", f"{url}{mount}")
