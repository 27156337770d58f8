"""Paths name objects: `kind:name` pairs from the tenant down, such as `ns:default:mci:web:vm:front-1`.

A path is the workflow ID, the lock path and the key in the inventory. Colons, because Temporal's HTTP API cannot
address a workflow ID with a slash in it. People may type the short form `default/web` where the kind is known.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

from pydantic import AfterValidator

from domain.errors import Category, Refused

MAX_NAME = 63
MAX_PATH = 600  # Temporal takes IDs of 1,000 characters; the rest is room for suffixes
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_KIND = re.compile(r"[a-z]{1,20}")
_NAME_RULE = "a name is 1 to 63 letters, digits, dots, dashes or underscores; first and last a letter or digit"


def check_name(name: str) -> str:
    """The name itself, or Refused before anything is made from it."""
    if not _NAME.fullmatch(name):
        raise Refused(Category.INVALID, f"bad name {_shown(name)}: {_NAME_RULE}")
    return name


def check_path(path: str) -> str:
    """The path itself, or Refused: pairs of kind and name, each well formed."""
    if len(path) > MAX_PATH:
        raise Refused(Category.INVALID, f"path of {len(path)} characters is too long: the limit is {MAX_PATH}")
    words = path.split(":")
    if len(words) % 2 or not all(_KIND.fullmatch(kind) for kind in words[::2]):
        raise Refused(
            Category.INVALID,
            f"bad path {_shown(path)}: a path is kind:name pairs",
            "an example is ns:default:mci:web",
        )
    for name in words[1::2]:
        check_name(name)
    return path


def _checked(path: str) -> str:
    try:
        return check_path(path)
    except Refused as refused:
        raise ValueError(refused.message) from refused


ObjectPath = Annotated[str, AfterValidator(_checked)]


def make(scope: Sequence[str], names: Sequence[str]) -> str:
    """Kinds and names, one each, as a path."""
    return ":".join(f"{kind}:{check_name(name)}" for kind, name in zip(scope, names, strict=True))


def expand(text: str, scope: Sequence[str]) -> str:
    """A path as a person types it: the whole path, or the short form `default/web` for the kinds in `scope`."""
    if ":" in text:
        path = check_path(text)
        if tuple(path.split(":")[::2]) != tuple(scope):
            raise _not_a(text, scope)
        return path
    names = text.split("/")
    if len(names) != len(scope):
        raise _not_a(text, scope)
    return make(scope, names)


def short(path: str) -> str:
    """The form people type: names only, with slashes."""
    return "/".join(path.split(":")[1::2])


def kind_of(path: str) -> str:
    """The kind of the object itself: the last one on the path."""
    return path.split(":")[-2]


def name_of(path: str) -> str:
    """The object's own name: the last word of the path."""
    return path.rsplit(":", 1)[-1]


def ancestors(path: str) -> list[str]:
    """Every path above this one, the tenant first."""
    words = path.split(":")
    return [":".join(words[:end]) for end in range(2, len(words), 2)]


def parent_of(path: str) -> str | None:
    """The path just above, or None for a tenant."""
    above = ancestors(path)
    return above[-1] if above else None


def _not_a(text: str, scope: Sequence[str]) -> Refused:
    example = "/".join(f"<{kind}>" for kind in scope)
    return Refused(Category.INVALID, f"{_shown(text)} does not name an object of kind {scope[-1]}", f"write {example}")


def _shown(text: str) -> str:
    """Hostile text made safe to print: escaped and short."""
    return ascii(text if len(text) <= 80 else text[:77] + "...")
