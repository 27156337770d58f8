"""Property expressions: which hosts a reservation wants, as a tree of comparisons.

Two notations mean the same. A mapping wants all of its properties: `{"gpu": "a100", "vcpus": ">=32"}`. A list is an
expression: `["and", ["==", "$gpu", "a100"], ["or", [">=", "$vcpus", "32"], ["<", "$rack", "3"]]]`, where one property
may occur more than once. Two numbers are compared as numbers, everything else as text. A host without the property
meets no comparison, not even `!=`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SIGNS = (">=", "<=", "!=", "==", ">", "<")  # longer signs before their beginnings
MAX_DEPTH = 8
MAX_COMPARISONS = 50
MAX_TEXT = 100
_NUMBER = re.compile(r"[+-]?\d{1,30}(\.\d{1,30})?")


@dataclass(frozen=True)
class PropertyComparison:
    """One comparison of a property with a value."""

    sign: str
    name: str
    value: str

    def __str__(self) -> str:
        return f"{self.name} {self.sign} {self.value}"


@dataclass(frozen=True)
class PropertyGroup:
    """Several conditions, of which all must hold (`and`) or at least one (`or`)."""

    word: str
    parts: tuple[PropertyCondition, ...]

    def __str__(self) -> str:
        return f" {self.word} ".join(
            f"({part})" if isinstance(part, PropertyGroup) and part.word != self.word else str(part)
            for part in self.parts
        )


PropertyCondition = PropertyComparison | PropertyGroup


def parse_condition(wanted: Mapping[str, object] | Sequence[Any]) -> PropertyCondition | None:
    """Parses either notation; None if nothing is wanted. Raises ValueError with what is wrong."""
    if not wanted:
        return None
    if isinstance(wanted, Mapping):
        found: PropertyCondition = PropertyGroup("and", tuple(_parse_pair(*pair) for pair in wanted.items()))
    else:
        found = _parse_list(wanted, MAX_DEPTH)
    if (number := len(list_comparisons(found))) > MAX_COMPARISONS:
        raise ValueError(f"{number} comparisons: the limit is {MAX_COMPARISONS}")
    return found


def list_comparisons(condition: PropertyCondition) -> list[PropertyComparison]:
    """Returns all comparisons of a condition, from left to right."""
    if isinstance(condition, PropertyComparison):
        return [condition]
    return [each for part in condition.parts for each in list_comparisons(part)]


def condition_as_list(condition: PropertyCondition | None) -> list[Any]:
    """Returns a condition as a list expression; empty for none."""
    if condition is None:
        return []
    if isinstance(condition, PropertyComparison):
        return [condition.sign, f"${condition.name}", condition.value]
    if len(condition.parts) == 1:
        return condition_as_list(condition.parts[0])
    return [condition.word, *map(condition_as_list, condition.parts)]


def value_as_text(value: object) -> str:
    """Returns a value as it is compared: `True` equals `true`, and `16.0` equals `16`."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).lower() if str(value).lower() in ("true", "false") else str(value)


def value_as_number(value: object) -> float | None:
    """Returns a value as a number; None if it is not one."""
    text = value_as_text(value)
    return float(text) if _NUMBER.fullmatch(text) and math.isfinite(float(text)) else None


def _parse_pair(name: str, value: object) -> PropertyComparison:
    for sign in SIGNS:
        if isinstance(value, str) and value.startswith(sign):
            return PropertyComparison(sign, name, value_as_text(value.removeprefix(sign).strip()))
    return PropertyComparison("==", name, value_as_text(value))


def _parse_list(words: Sequence[Any], depth: int) -> PropertyCondition:
    if not depth:
        raise ValueError(f"the expression is nested more than {MAX_DEPTH} times")
    first = words[0] if words else None
    if first in ("and", "or"):
        if len(words) < 2 or not all(isinstance(word, list) for word in words[1:]):
            raise ValueError(f"{first!r} must be followed by expressions, each a list")
        return PropertyGroup(str(first), tuple(_parse_list(word, depth - 1) for word in words[1:]))
    if first not in SIGNS:
        raise ValueError(f"an expression begins with and, or, {', '.join(SIGNS)}, not with {str(first)[:40]!a}")
    if len(words) != 3:
        raise ValueError(f"a comparison has three words, such as [{first!r}, '$gpu', 'a100'], not {len(words)}")
    _, name, value = words
    if not (isinstance(name, str) and 2 <= len(name) <= 64 and name.startswith("$")):
        raise ValueError(f"the property of a comparison is written like '$gpu', not {str(name)[:40]!a}")
    if not isinstance(value, str | int | float) or len(str(value)) > MAX_TEXT:
        raise ValueError(f"the value of a comparison is a text or a number, not {str(value)[:40]!a}")
    return PropertyComparison(str(first), name.removeprefix("$"), value_as_text(value))
