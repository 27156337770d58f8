"""The OpenAPI document is true: requests made from it get no server error and no answer that it does not describe."""

from __future__ import annotations

from pathlib import Path

from tests.test_dialects.clients import ClientPrograms

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance"


async def test_every_operation_answers_as_its_document_says(programs: Path, url: str) -> None:
    options = ["--checks", CHECKS, "--max-examples", "2", "--phases", "examples,fuzzing", "--workers", "4"]
    quick = ["--header", "Prefer: respond-async", "--exclude-path", "/v1/events"]  # a stream has no end
    code, out, told = await ClientPrograms(programs).run(
        "schemathesis", "run", f"{url}/openapi.json", *options, *quick, "--no-color"
    )
    assert code == 0, out[-3000:] + told[-1000:]
    assert "Tested: " in out
