"""Reads spec files: YAML or JSON of bounded size, plain values only."""

from __future__ import annotations

import json
import sys
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from domain.errors import Category, Refused, format_one_line
from domain.limits import MAX_SPEC_BYTES

STDIN_NAME = "-"
MAX_DEPTH = 50


def read_spec(source: str) -> dict[str, Any]:
    """Returns the mapping in a file, or on stdin if the file is `-`."""
    told = "stdin" if source == STDIN_NAME else source
    try:
        document = parse_spec_text(_read_text(source))
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: bad UTF-8, bad JSON, a number too long
        raise _bad_spec_refusal(told, format_one_line(_yaml_reason(error), 300)) from error
    except OSError as error:
        why = error.strerror or str(error)
        raise _bad_spec_refusal(told, why, "name a file that can be read, or - for stdin") from error
    if not isinstance(document, dict):
        raise _bad_spec_refusal(told, f"a mapping is wanted at the top, this is {_type_name_of_value(document)}")
    return document


def parse_spec_text(text: str) -> Any:
    """Parses YAML or JSON, of which YAML is no full superset. Only JSON's types: no dates, no aliases."""
    if text.lstrip().startswith("{"):
        try:
            return json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_refuse_json_constant)
        except json.JSONDecodeError as error:
            if not _is_flow_yaml(text):
                raise ValueError(f"not valid JSON: {error}") from error
    document = yaml.load(text, _StrictLoader)  # noqa: S506  a safe loader, made stricter
    _check_json_types(document)
    return document


class _StrictLoader(yaml.SafeLoader):
    """A safe loader. It refuses aliases (a few lines can expand to 10^9 nodes), double keys and deep nesting."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        where = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        if self.check_event(yaml.AliasEvent):
            raise yaml.MarkedYAMLError(problem="aliases are not taken here", problem_mark=where)
        if self.depth == MAX_DEPTH:
            raise yaml.MarkedYAMLError(problem="it is nested too deep", problem_mark=where)
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        pairs = [(self.construct_object(key, deep=True), None) for key, _ in node.value]
        _unique_keys(pairs)
        return super().construct_mapping(node, deep)


def _read_text(source: str) -> str:
    if source == STDIN_NAME:
        content = sys.stdin.buffer.read(MAX_SPEC_BYTES + 1)
    else:
        with Path(source).open("rb") as file:
            content = file.read(MAX_SPEC_BYTES + 1)
    if len(content) > MAX_SPEC_BYTES:
        raise ValueError(f"it is larger than {MAX_SPEC_BYTES // 1024} KiB")
    return content.decode("utf-8")


def _is_flow_yaml(text: str) -> bool:
    """Tells whether a text that begins with a brace is YAML, not JSON."""
    try:
        yaml.load(text, _StrictLoader)  # noqa: S506  as above
    except (yaml.YAMLError, ValueError):
        return False
    return True


def _unique_keys(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for key, value in pairs:
        if not isinstance(key, str):
            raise ValueError(f"the key {key!r} is not text: put it into quotes")
        if key in found:
            raise ValueError(f"the key {key!r} occurs twice")
        found[key] = value
    return found


def _refuse_json_constant(word: str) -> float:
    raise ValueError(f"{word} is not a number that can be sent")


def _check_json_types(value: Any) -> None:
    """Refuses YAML's dates, sets and binaries: JSON has none."""
    if isinstance(value, dict):
        for item in value.values():
            _check_json_types(item)
    elif isinstance(value, list):
        for item in value:
            _check_json_types(item)
    elif not isinstance(value, str | int | float | None):
        raise ValueError(f"{value!r} is a {_type_name_of_value(value)}: put it into quotes")
    elif isinstance(value, float) and value - value != 0:
        raise ValueError(f"{value} is not a number that can be sent")


def _type_name_of_value(value: Any) -> str:
    return "empty" if value is None else type(value).__name__


def _yaml_reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deep"
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 text: {error.reason} at byte {error.start}"
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    return str(error)


def _bad_spec_refusal(source: str, why: str, hint: str = "correct the file; examples/ has one of each kind") -> Refused:
    return Refused(Category.INVALID, f"cannot use {ascii(source)[1:-1][:200]} as a spec: {why}", hint)
