"""The OpenAPI document is true: requests made from it get no server error and no answer that it does not describe."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from domain.aliases import READ_ALIASES, AliasesView, AliasQuery, Dialect
from gateway.dialects import g8, tumblebug
from gateway.dialects.mounts import MOUNTS
from tests.patience import PATIENCE
from tests.test_dialects.clients import ClientPrograms
from tests.test_dialects.documents import describe_g8, describe_tumblebug
from tests.user import User

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


async def run_schemathesis(programs: Path, document: str, *more: str) -> None:
    options = [
        "--checks",
        CHECKS,
        "--max-examples",
        "2",
        "--phases",
        "examples,fuzzing",
        "--workers",
        "1",  # threads that parse at once fail at random in early Python 3.11: python/cpython#106905
        "--request-timeout",
        str(PATIENCE),
        "--suppress-health-check",
        "too_slow",
    ]
    code, out, told = await ClientPrograms(programs).run("schemathesis", "run", document, *options, *more, "--no-color")
    assert code == 0, out[-3000:] + told[-1000:]
    assert "Tested: " in out


async def test_every_operation_answers_as_its_document_says(programs: Path, url: str) -> None:
    quick = ["--header", "Prefer: respond-async", "--exclude-path", "/v1/events"]  # a stream has no end
    await run_schemathesis(programs, f"{url}/openapi.json", *quick)


@pytest.mark.parametrize("mount", ["/identity", "/reservation"])
async def test_a_dialect_answers_as_its_routes_say(programs: Path, url: str, tmp_path: Path, mount: str) -> None:
    """The dialects that have a route for each operation."""
    document = tmp_path / "openapi.json"
    document.write_text(json.dumps(MOUNTS[mount]().openapi()))
    await run_schemathesis(programs, str(document), "--url", f"{url}{mount}")


async def test_openvcloud_answers_every_call(programs: Path, url: str, user: User, tmp_path: Path) -> None:
    account = f"account:{user.ns}"
    await user.do(f"node:{user.ns}", "create", spec={"memory": 64})
    await user.do(f"image:{user.ns}", "create")
    for path in (account, f"{account}:cloudspace:dev"):
        await user.do(path, "create")
    await user.do(f"{account}:disk:d1", "create", spec={"size": 5})
    await user.do(f"{account}:cloudspace:dev:machine:m1", "create", spec={"image": user.ns})
    kinds = {
        "account": account,
        "image": f"image:{user.ns}",
        "cloudspace": f"{account}:cloudspace:dev",
        "disk": f"{account}:disk:d1",
        "machine": f"{account}:cloudspace:dev:machine:m1",
    }
    query = AliasQuery(dialect=Dialect.G8, paths=list(kinds.values()))
    found = await user.asking.run_query(READ_ALIASES, query, AliasesView)
    numbers = {alias.path: int(alias.id) for alias in found.aliases}
    document = tmp_path / "openapi.json"
    document.write_text(json.dumps(describe_g8({f"{kind}Id": numbers[path] for kind, path in kinds.items()})))
    await run_schemathesis(programs, str(document), "--url", f"{url}{g8.MOUNT}")


@pytest.mark.parametrize("words", ["old", "new"])
async def test_tumblebug_answers_every_route(programs: Path, url: str, user: User, tmp_path: Path, words: str) -> None:
    await user.do(user.mci(), "create", spec=user.groups(size=1))
    names = {
        "ns": user.ns,
        "mci": "web",
        "infra": "web",
        "vm": "aws-1",
        "node": "aws-1",
        "group": "aws",
        "resource": "vNet",
    }
    document = tmp_path / "openapi.json"
    document.write_text(json.dumps(describe_tumblebug(names, words == "new")))
    await run_schemathesis(programs, str(document), "--url", f"{url}{tumblebug.MOUNT}")
