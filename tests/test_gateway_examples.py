"""Everything that a request to the gateway needs has an example, for every kind of every family."""

from __future__ import annotations

from typing import Any

import httpx

from domain import registry
from domain.model import Request
from gateway.openapi import _example_path, example_body
from tests.cases import every_case
from tests.test_gateway_messages import gateway_settings, http, url

__all__ = ["gateway_settings", "http", "url"]  # fixtures of theirs
VERBS = {
    f"{kind.name} {verb.action}": (kind, verb)
    for kind in registry.KINDS.values()
    for verb in kind.verbs
    if verb.action in kind.requestable_actions
}


@every_case("words", VERBS)
def test_every_action_has_an_example_that_its_spec_accepts(words: str) -> None:
    kind, verb = VERBS[words]
    registry.parse_spec(Request(path=_example_path(kind), action=verb.action, **example_body(kind, verb)))


async def test_the_document_has_the_examples(http: httpx.AsyncClient) -> None:
    document = (await http.get("/openapi.json")).json()
    for words, (kind, _) in VERBS.items():
        operation = document["paths"][f"/v1/objects/{{path}}/actions/{words.split()[1]}"]["post"]
        assert kind.name in operation["requestBody"]["content"]["application/json"]["examples"], words


async def test_everything_that_a_request_needs_has_an_example(http: httpx.AsyncClient) -> None:
    document = (await http.get("/openapi.json")).json()

    def has_example(schema: dict[str, Any]) -> bool:
        """By itself; or each of the fields that it needs has one."""
        if name := schema.get("$ref", "").rpartition("/")[2]:
            schema = document["components"]["schemas"][name]
        needed = [field for name, field in schema.get("properties", {}).items() if name in schema.get("required", ())]
        values = {"example", "examples", "enum", "const", "default"} & set(schema)
        return bool(values) or (bool(schema.get("properties")) and all(has_example(field) for field in needed))

    missing = []
    for route, operations in document["paths"].items():
        for method, operation in operations.items():
            needed = [each for each in operation.get("parameters", []) if each.get("required")]
            needed += operation.get("requestBody", {}).get("content", {}).values()
            missing += [
                (method, route, each.get("name", "body"))
                for each in needed
                if not ({"example", "examples"} & set(each) or has_example(each["schema"]))
            ]
    assert not missing
