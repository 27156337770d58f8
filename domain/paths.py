"""Paths name objects: `kind:name` pairs from the tenant down, such as `ns:default:mci:web:vm:front-1`.

A path is the workflow ID, the lock path and the key in the inventory. Colons, because Temporal's HTTP API cannot
address a workflow ID with a slash in it. People may type the short form `default/web` where the kind is known.

After the name of a tree's root the names of the tree follow, without kinds: `system:shop:a:b` is /a/b in the system
shop. An empty word ends the tree, and pairs go on: `system:shop:a:b::deploy:d1`, in short `shop/a/b//d1`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from domain.errors import Category, Refused

MAX_NAME = 63
MAX_PATH = 600  # Temporal takes IDs of 1,000 characters; the rest is room for suffixes
REMEMBERED_PATHS = 2_048  # an action parses its path dozens of times
_NAME_PATTERN = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_KIND_PATTERN = re.compile(r"[a-z]{1,20}")
PART_KIND_OF_TREE = {"system": "part"}  # the kinds that are roots of trees, and the kind of everything in the tree
_NAME_RULE = "a name is 1 to 63 letters, digits, dots, dashes or underscores; first and last a letter or digit"


def check_name(name: str) -> str:
    """Returns the name, or refuses a malformed one."""
    if not _NAME_PATTERN.fullmatch(name):
        raise Refused(Category.INVALID, f"bad name {_escape_text(name)}: {_NAME_RULE}")
    return name


@lru_cache(REMEMBERED_PATHS)
def check_path(path: str) -> str:
    """Returns the path, or refuses one that is not well-formed pairs of kind and name."""
    if len(path) > MAX_PATH:
        raise Refused(Category.INVALID, f"path of {len(path)} characters is too long: the limit is {MAX_PATH}")
    words, parts = path.split(":"), _objects_on_path(path)
    if parts[-1].end != len(words) or not all(_KIND_PATTERN.fullmatch(part.kind) for part in parts):
        raise Refused(
            Category.INVALID,
            f"bad path {_escape_text(path)}: a path is kind:name pairs",
            "an example is ns:default:mci:web",
        )
    for part in parts:
        check_name(words[part.end - 1])
    return path


class _PathPart(NamedTuple):
    """One object on a path: its kind, how many words of the path lead to it, and whether it lies in a tree."""

    kind: str
    end: int
    in_tree: bool


def _objects_on_path(path: str) -> tuple[_PathPart, ...]:
    """Returns the objects on the path, root first."""
    return _parse_path(path) if len(path) <= MAX_PATH else _parse_path.__wrapped__(path)  # no long text is remembered


@lru_cache(REMEMBERED_PATHS)
def _parse_path(path: str) -> tuple[_PathPart, ...]:
    words = path.split(":")
    parts: list[_PathPart] = []
    tree, at = "", 0
    while at < len(words):
        if tree and words[at]:
            at += 1
            parts.append(_PathPart(tree, at, True))
            continue
        at += 1 if tree else 0  # the empty word that ends a tree
        kind = words[at] if at < len(words) else ""
        at, tree = at + 2, PART_KIND_OF_TREE.get(kind, "")
        parts.append(_PathPart(kind, at, False))
    return tuple(parts)


def build_path(scope: Sequence[str], names: Sequence[str]) -> str:
    """Builds a path from kinds and names, one name per kind; a tree takes all names that are left over."""
    root = next((at for at, kind in enumerate(scope[:-1]) if kind in PART_KIND_OF_TREE), None)
    if root is None:
        return ":".join(f"{kind}:{check_name(name)}" for kind, name in zip(scope, names, strict=True))
    after = [kind for kind in scope[root + 1 :] if kind != PART_KIND_OF_TREE[scope[root]]]
    tail = len(names) - len(after)
    path = ":".join([build_path(scope[: root + 1], names[: root + 1]), *map(check_name, names[root + 1 : tail])])
    return f"{path}::{build_path(after, names[tail:])}" if after else path


def expand_path(text: str, scope: Sequence[str]) -> str:
    """Parses a path as a person types it: the whole path, or the short form `default/web` for the kinds in `scope`."""
    if ":" in text:
        path = check_path(text)
        if kinds_on_path(path) != tuple(scope):
            raise _wrong_path_refusal(text, scope)
        return path
    names = text.replace("//", "/", 1).split("/")
    deeper = len(names) > len(scope) and any(kind in PART_KIND_OF_TREE for kind in scope[:-1])
    if len(names) != len(scope) and not deeper:
        raise _wrong_path_refusal(text, scope)
    path = build_path(scope, names)
    if short_path(path) != text:
        raise _wrong_path_refusal(text, scope)
    return path


def kinds_on_path(path: str) -> tuple[str, ...]:
    """Returns the kinds on the path. A tree's kind counts once, at any depth, and only if the path ends in the tree."""
    places = _objects_on_path(path)
    return tuple(place.kind for place in places if not place.in_tree or place is places[-1])


def short_path(path: str) -> str:
    """Returns the short form that people type: names only, with slashes; two slashes where a tree ends."""
    words, text, before = path.split(":"), "", 0
    for _, end, _ in _objects_on_path(path):
        text += ("//" if end - before > 2 else "/") + words[end - 1]
        before = end
    return text[1:]


def kind_of(path: str) -> str:
    """Returns the kind of the object: the last kind on the path."""
    return _objects_on_path(path)[-1].kind


def root_of(path: str) -> str:
    """Returns the path of the root: the first kind and name, such as `ns:default`."""
    return ":".join(path.split(":", 2)[:2])


def name_of(path: str) -> str:
    """Returns the object's own name: the last word of the path."""
    return path.rsplit(":", 1)[-1]


def ancestor_paths(path: str) -> list[str]:
    """Returns every path above this one, root first."""
    words = path.split(":")
    return [":".join(words[: place.end]) for place in _objects_on_path(path)[:-1]]


def parent_of(path: str) -> str | None:
    """Returns the path just above, or None for a root."""
    above = ancestor_paths(path)
    return above[-1] if above else None


def is_at_or_below(path: str, prefix: str) -> bool:
    """Tells whether a path is `prefix` or below it; `ns:ab` is not below `ns:a`."""
    return path == prefix or path.startswith(f"{prefix}:")


def _wrong_path_refusal(text: str, scope: Sequence[str]) -> Refused:
    form = "/".join(f"<{kind}>" for kind in scope)
    if len(scope) == 2 and _NAME_PATTERN.fullmatch(text):
        form += f", such as default/{text}"  # only the tenant is missing
    return Refused(
        Category.INVALID, f"{_escape_text(text)} does not name an object of kind {scope[-1]}", f"write {form}"
    )


def _escape_text(text: str) -> str:
    """Makes hostile text safe to print: escaped and cut."""
    return ascii(text if len(text) <= 80 else text[:77] + "...")
