"""The OpenAPI document: FastAPI's, with one operation for each action of the registry, typed by its spec."""

from __future__ import annotations

import copy
from collections import defaultdict
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from domain import registry
from domain.dryrun import DryRun
from domain.kinds import Kind, Verb
from domain.model import Outcome, Progress
from domain.paths import build_path
from gateway.problems import MEDIA_TYPE, Problem

GENERIC_PATH = "/v1/objects/{path}/actions/{action}"
_REFERENCE = "#/components/schemas/{model}"
_BODY = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
_MEANING_OF_STATUS = {
    400: "The request is malformed.",
    401: "The gateway wants a token.",
    403: "Refused for good: a quota, or a page of another site.",
    404: "There is no such object, kind or run.",
    408: "The body came too slowly.",
    409: "Not allowed now. `holders` says which action is in the way.",
    413: "The body is too large.",
    421: "The `Host` header names another host.",
    422: "A field is wrong; `errors` names it.",
    503: "Temporal, a worker or the store does not answer.",
}
PROBLEM_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"description": meaning, "content": _BODY} for status, meaning in _MEANING_OF_STATUS.items()
}


def build_openapi_document(app: FastAPI) -> dict[str, Any]:
    """The document of an app; made once."""
    if app.openapi_schema:
        return app.openapi_schema
    document = get_openapi(
        title=app.title,
        version=app.version,
        description=app.description,
        routes=app.routes,
        openapi_version="3.1.0",
    )
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas.pop("HTTPValidationError", None)
    schemas.pop("ValidationError", None)
    references = _add_schemas(schemas)
    generic = document["paths"].pop(GENERIC_PATH)["post"]
    for action, offers in _kinds_by_action().items():
        document["paths"][GENERIC_PATH.replace("{action}", action)] = {
            "post": _action_operation(generic, action, offers, references)
        }
    document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"token": []}, {}]  # a gateway without tokens answers everybody
    app.openapi_schema = document
    return document


def _kinds_by_action() -> dict[str, list[tuple[Kind, Verb]]]:
    """The kinds that offer each action."""
    offers: defaultdict[str, list[tuple[Kind, Verb]]] = defaultdict(list)
    for kind in registry.KINDS.values():
        for verb in kind.verbs:
            if verb.action in kind.requestable_actions:
                offers[verb.action].append((kind, verb))
    return offers


def _add_schemas(schemas: dict[str, Any]) -> dict[type[BaseModel], str]:
    """Add the schemas of specs and answers; returns the reference of each spec."""
    specs = {verb.spec for offers in _kinds_by_action().values() for _, verb in offers if verb.spec}
    models: list[type[BaseModel]] = [
        *sorted(specs, key=lambda spec: spec.__name__),
        Outcome,
        Progress,
        DryRun,
        Problem,
    ]
    references, defined = models_json_schema([(model, "validation") for model in models], ref_template=_REFERENCE)
    schemas.update(defined.get("$defs", {}))
    return {model: references[model, "validation"]["$ref"] for model in models}


def _action_operation(
    generic: dict[str, Any], action: str, offers: list[tuple[Kind, Verb]], references: dict[type[BaseModel], str]
) -> dict[str, Any]:
    operation = copy.deepcopy(generic)
    operation["operationId"] = f"request_{action.replace('-', '_')}"
    operation["summary"] = f"{action} {', '.join(kind.name for kind, _ in offers)}"
    operation["description"] = "\n".join(f"- {kind.name}: {verb.help}" for kind, verb in offers)
    operation["parameters"] = [each for each in operation["parameters"] if each["name"] != "action"]
    for parameter in operation["parameters"]:
        if parameter["name"] == "path":
            parameter["schema"]["examples"] = [_example_path(kind) for kind, _ in offers]
    taken = sorted({references[verb.spec] for _, verb in offers if verb.spec})
    spec: dict[str, Any] = {"anyOf": [*({"$ref": each} for each in taken), {"type": "null"}]}
    body = {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            **({"spec": spec} if taken else {}),
            "reason": {"type": "string", "maxLength": 500},
            "force": {"type": "boolean", "default": False},
        },
    }
    examples = {kind.name: {"summary": verb.help, "value": example_body(kind, verb)} for kind, verb in offers}
    operation["requestBody"] = {"content": {"application/json": {"schema": body, "examples": examples}}}
    return operation


def example_body(kind: Kind, verb: Verb) -> dict[str, Any]:
    """An example body for an action of a kind, from the example of its spec; a test checks each against its model."""
    spec = verb.spec.example if verb.spec else {}
    return {**({"spec": spec} if spec else {}), "reason": f"{verb.action} of the {kind.name} as planned"}


def _example_path(kind: Kind) -> str:
    return build_path(kind.scope, [f"my-{word}" for word in kind.scope])
