"""Names of objects on the command line: whole paths, or short forms where one kind fits."""

from __future__ import annotations

from domain import registry
from domain.errors import Category, Refused
from domain.model import Request
from domain.paths import build_path, check_path, expand_path
from domain.validation import refuse_validation_errors
from domain.wire import object_path_of


def possible_paths(text: str) -> list[str]:
    """Returns the paths that a short form may mean: one for every kind with that number of names."""
    if ":" in text:
        registry.kind_at(check_path(object_path_of(text)))
        return [text]
    found = [path for kind in registry.KINDS.values() if (path := _expand_or_empty(text, kind))]
    if found:
        return found
    fitting = [kind for kind in registry.KINDS.values() if len(kind.scope) == text.count("/") + 1]
    if not fitting:
        known = ", ".join(":".join(f"{kind}:<name>" for kind in kind.scope) for kind in registry.KINDS.values())
        raise Refused(Category.INVALID, f"{text[:80]!a} does not name one object", f"write a whole path: {known}")
    return [expand_path(text, kind.scope) for kind in fitting]


def _expand_or_empty(text: str, kind: registry.Kind) -> str:
    try:
        return expand_path(text, kind.scope)
    except Refused:
        return ""


def prefix_to_list(text: str, kind: registry.Kind) -> str:
    """Returns the path below which to list objects of a kind, from a path or its first names; empty: everywhere."""
    if not text:
        return ""
    if ":" in text:
        return check_path(text)
    names = text.split("/")
    if len(names) > len(kind.scope):
        return expand_path(text, kind.scope)  # raises Refused, with the right form
    return build_path(kind.scope[: len(names)], names)


def compose_request(path: str, action: str, **rest: object) -> Request:
    """Composes a request and validates it as far as possible without a worker."""
    with refuse_validation_errors("the request is not valid", whole="request"):
        request = Request.model_validate({"path": path, "action": action, **rest})
    registry.parse_spec(request)
    return request
