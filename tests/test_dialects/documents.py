"""OpenAPI documents of the dialects whose routes are a table: what their clients may send to each, and get."""

from __future__ import annotations

import re
from typing import Any

from gateway.dialects import g8, tumblebug
from gateway.dialects.apps import ERROR_RESPONSES
from gateway.dialects.tumblebug_vocabulary import NEW_OF_OLD, rename_keys

TEXT: dict[str, Any] = {"type": "string"}
NUMBER: dict[str, Any] = {"type": "integer"}
FLAG: dict[str, Any] = {"type": "boolean"}
NUMERAL: dict[str, Any] = {"type": "string", "pattern": "^[0-9]{1,3}$"}
NAME: dict[str, Any] = {"type": "string", "pattern": "^[a-z][a-z0-9-]{0,20}$"}

_G8_FIELDS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {  # call -> its own parameters, and which are needed
    "machines/list": ({"cloudspaceId": NUMBER}, ("cloudspaceId",)),
    "machines/create": (
        {
            **{"name": NAME, "cloudspaceId": NUMBER, "imageId": NUMBER, "description": TEXT, "disksize": NUMBER},
            **{"sizeId": NUMBER, "memory": {"enum": [512, 1024]}, "vcpus": {"enum": [1, 2]}},
            "datadisks": {"type": "array", "items": NUMBER, "maxItems": 2},
        },
        ("name", "cloudspaceId", "imageId", "memory", "vcpus"),
    ),
    "machines/attachDisk": ({"machineId": NUMBER, "diskId": NUMBER}, ("machineId", "diskId")),
    "machines/detachDisk": ({"machineId": NUMBER, "diskId": NUMBER}, ("machineId", "diskId")),
    "machines/addDisk": (
        {"machineId": NUMBER, "diskName": NAME, "description": TEXT, "size": NUMBER, "type": TEXT, "iops": NUMBER},
        ("machineId", "diskName"),
    ),
    "cloudspaces/create": (
        {"accountId": NUMBER, "name": NAME, "location": TEXT, "access": TEXT, "privatenetwork": TEXT, "type": TEXT},
        ("accountId", "name"),
    ),
    "disks/list": ({"accountId": NUMBER}, ("accountId",)),
    "disks/create": (
        {"accountId": NUMBER, "name": NAME, "size": NUMBER, "type": TEXT, "description": TEXT, "gid": NUMBER},
        ("accountId", "name", "size"),
    ),
}
_GROUP = {
    "type": "object",
    "properties": {
        **{"name": NAME, "subGroupSize": NUMERAL, "description": TEXT, "connectionName": TEXT, "rootDiskSize": TEXT},
        **{"specId": {"enum": ["aws+eu-central-1+small", "small"]}, "imageId": {"enum": ["ubuntu-24.04"]}},
        "label": {"type": "object"},
    },
    "required": ["specId", "imageId"],
}
_MCI = {
    "type": "object",
    "properties": {
        **{"name": NAME, "description": TEXT, "label": {"type": "object"}, "installMonAgent": {"enum": ["", "no"]}},
        "policyOnPartialFailure": {"enum": ["continue", "rollback", "refine"]},
        "postCommand": {"type": "object", "properties": {"command": {"type": "array"}, "userName": TEXT}},
        "subGroups": {"type": "array", "items": _GROUP, "minItems": 1, "maxItems": 2},
    },
    "required": ["name", "subGroups"],
}
_TUMBLEBUG_BODIES: dict[str, dict[str, Any]] = {
    "ns": {"type": "object", "properties": {"name": NAME, "description": TEXT}, "required": ["name"]},
    "ns/{ns}/mciDynamic": _MCI,
    "ns/{ns}/mciDynamicReview": _MCI,
    "ns/{ns}/mci/{mci}/subgroup/{group}": {"type": "object", "properties": {"numVMsToAdd": NUMERAL}},
}
_OPTIONS = ("", "id", "status", "simple", "accessinfo", "terminate", "force")
_ACTIONS = ("suspend", "resume", "reboot", "terminate", "refine", "continue", "withdraw", "fly")


def describe_g8(known: dict[str, int]) -> dict[str, Any]:
    """Describes every call of OpenvCloud's API. `known` are numbers of objects that exist, by parameter."""
    calls = {name: _describe_g8_call(name, known) for name in g8.HANDLERS}
    return _document({f"/cloudapi/{name}": {"post": call} for name, call in sorted(calls.items())})


def _describe_g8_call(name: str, known: dict[str, int]) -> dict[str, Any]:
    kind = name.partition("s/")[0]
    own = {f"{kind}Id": NUMBER, "permanently": FLAG, "force": FLAG, "reason": TEXT}
    fields, needed = _G8_FIELDS.get(name, (own, (f"{kind}Id",) if f"{kind}Id" in known else ()))
    properties = {field: {"enum": [known[field], 0]} if field in known else schema for field, schema in fields.items()}
    return _operation({"type": ["object", "null"], "properties": properties, "required": list(needed)})


def describe_tumblebug(names: dict[str, str], new_words: bool) -> dict[str, Any]:
    """Describes every route of Tumblebug's API, in one vocabulary. `names` are those of objects that exist."""
    paths: dict[str, Any] = {}
    for method, route in tumblebug.ROUTES:
        if (method, route) == ("POST", "ns/{ns}/mci"):
            continue  # answered with 501 by its name
        template = route.replace("{resource}", "vNet")  # others, too
        body = _TUMBLEBUG_BODIES.get(template) if method == "POST" else None
        if new_words:
            renamed = (NEW_OF_OLD.get(word, word) for word in template.split("/"))
            template, body = "/".join(renamed), rename_keys(body, NEW_OF_OLD)
        operation = _operation(body)
        for name in re.findall(r"{(\w+)}", template):
            schema = {"enum": [names[name], "other"]} if name in names else NAME
            operation["parameters"].append({"name": name, "in": "path", "required": True, "schema": schema})
        for name, words in (("option", _OPTIONS), ("action", _ACTIONS), ("force", ("true", "false"))):
            schema = {"enum": list(words)}
            operation["parameters"].append({"name": name, "in": "query", "schema": schema})
        paths.setdefault(f"/{template}", {})[method.lower()] = operation
    return _document(paths)


def _operation(body: dict[str, Any] | None) -> dict[str, Any]:
    content: dict[str, Any] = {"application/json": {"schema": {}}}
    answers = {str(status): {"description": "", "content": content} for status in (200, *ERROR_RESPONSES)}
    found: dict[str, Any] = {"parameters": [], "responses": answers}
    if body is not None:
        found["requestBody"] = {"content": {"application/json": {"schema": body}}}
    return found


def _document(paths: dict[str, Any]) -> dict[str, Any]:
    return {"openapi": "3.1.0", "info": {"title": "a dialect", "version": "1"}, "paths": paths}
