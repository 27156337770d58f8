"""Reads a worker's YAML files (keys, policy, connections) with bounded size and depth. Errors never quote them."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import BaseModel

from domain.errors import Category, Refused
from domain.limits import MAX_SPEC_BYTES
from domain.validation import refuse_validation_errors

M = TypeVar("M", bound=BaseModel)

OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
MAX_NODES = 100_000  # with every alias expanded: a few lines of them can expand to a thousand million


class UnreadableDocument(Exception):
    """Why a file cannot be used; the caller puts the file's name before it."""


def load_document(model: type[M], file: Path, what: str, hint: str) -> M:
    """Reads a file as a model. Refused if it cannot be read or is not valid; `what` begins the message."""
    try:
        with refuse_validation_errors(f"{what} is not valid", hint):
            return model.model_validate(read_document(file) or {})
    except UnreadableDocument as error:
        raise Refused(Category.INVALID, f"{what} {error}", hint) from error


def read_document(file: Path) -> object:
    """Parses the file, or raises UnreadableDocument with line and column: YAML's own messages may quote a secret."""
    try:
        facts = file.stat()
        if facts.st_mode & OTHERS_WRITE:
            raise UnreadableDocument(f"can be changed by others: chmod go-w {file}")
        if facts.st_size > MAX_SPEC_BYTES:
            raise UnreadableDocument(f"is larger than {MAX_SPEC_BYTES // 1024} KiB")
        return _parse_yaml(file.read_text())
    except OSError as error:
        raise UnreadableDocument(f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise UnreadableDocument("is not text") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise UnreadableDocument(f"is not YAML{where}") from None
    except RecursionError:
        raise UnreadableDocument("is nested too deep") from None
    except ValueError:  # such as February 30, or a number of five thousand digits
        raise UnreadableDocument("has a value that means nothing") from None


def _parse_yaml(text: str) -> object:
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        if _count_nodes(node, {}) > MAX_NODES:
            raise UnreadableDocument("has aliases that make too much of it")
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _count_nodes(node: yaml.Node, sizes: dict[int, int]) -> int:
    """Counts the nodes with every alias expanded; an alias inside itself counts as infinite."""
    if id(node) not in sizes:
        sizes[id(node)] = MAX_NODES + 1  # for a node that contains itself
        inner = [child for pair in node.value for child in pair] if isinstance(node, yaml.MappingNode) else node.value
        nodes = inner if isinstance(inner, list) else []
        sizes[id(node)] = 1 + sum(_count_nodes(child, sizes) for child in nodes)
    return sizes[id(node)]
