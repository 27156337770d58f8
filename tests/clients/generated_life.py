"""An MCI's life through the client generated from the OpenAPI document: `python generated_life.py URL NAMESPACE`.

It runs as a program of its own, where the generated package `ratchet_api` can be imported.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any


def operation(name: str) -> Any:
    """One operation of the API: a module with a function for each way to call it."""
    return import_module(f"ratchet_api.api.default.{name}")


def live(url: str, namespace: str) -> None:
    api: Any = import_module("ratchet_api")
    models: Any = import_module("ratchet_api.models")
    client = api.Client(base_url=url, timeout=120.0)
    path = f"ns:{namespace}:mci:typed"

    group = models.SubGroup(name="front", sub_group_size=2, csp="aws", region="eu-central-1")
    body = models.RequestCreateBody(spec=models.MciSpec(sub_groups=[group]), reason="a typed client")
    made = operation("request_create").sync(path, client=client, body=body, idempotency_key="once")
    assert isinstance(made, models.Outcome), made
    assert (made.result.value, made.done, made.status) == ("succeeded", 2, "Running:2 (R:2/2)"), made
    again = operation("request_create").sync(path, client=client, body=body, idempotency_key="once")
    assert again == made

    seen = operation("get_object").sync(path, client=client)
    assert isinstance(seen, models.ObjectView), seen
    assert (seen.path, seen.kind, seen.status) == (path, "mci", "Running:2 (R:2/2)")
    page = operation("list_objects").sync(client=client, kind="vm", prefix=path, limit=1)
    assert [vm.path for vm in page.objects] == [f"{path}:vm:front-1"]

    stopped = operation("request_suspend").sync(path, client=client)
    assert (stopped.action, stopped.status) == ("suspend", "Suspended:2 (R:0/2)"), stopped
    lines = operation("get_history").sync(path, client=client).lines
    assert {line.action for line in lines if line.request_id == "once"} == {"create"}, lines
    assert lines[0].at.tzinfo is not None, "times are times"

    refused = operation("request_suspend").sync_detailed(path, client=client)
    assert isinstance(refused.parsed, models.Problem), refused
    assert (refused.status_code, refused.parsed.status) == (409, 409)
    assert "Suspended" in refused.parsed.detail, refused.parsed
    missing = operation("get_object").sync(f"{path}x", client=client)
    assert (missing.status, missing.type_) == (404, "urn:ratchet:not_found")
    kinds = operation("list_kinds").sync(client=client)
    assert "mci" in [kind.name for kind in kinds]
    sys.stdout.write("lived\n")


if __name__ == "__main__":
    live(*sys.argv[1:])
