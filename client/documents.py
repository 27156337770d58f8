"""Files that whoever looks after a worker writes: YAML of bounded size, depth and meaning. Nothing of it is quoted."""

from __future__ import annotations

from pathlib import Path

import yaml

from domain.limits import MAX_SPEC_BYTES

MAX_NODES = 100_000  # with every alias written out: a few lines of them can make a thousand million


class Unreadable(Exception):
    """Why a file cannot be used, to stand behind its name."""


def read(file: Path) -> object:
    """What the file says, or Unreadable. YAML's own complaints may quote the line, so only the place is told."""
    try:
        if file.stat().st_size > MAX_SPEC_BYTES:
            raise Unreadable(f"is larger than {MAX_SPEC_BYTES // 1024} KiB")
        return _parsed(file.read_text())
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise Unreadable("is not text") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise Unreadable(f"is not YAML{where}") from None
    except RecursionError:
        raise Unreadable("is nested too deep") from None
    except ValueError:  # such as a date that there is not, or a number of five thousand digits
        raise Unreadable("has a value that means nothing") from None


def _parsed(text: str) -> object:
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        if _size(node, {}) > MAX_NODES:
            raise Unreadable("has aliases that make too much of it")
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _size(node: yaml.Node, known: dict[int, int]) -> int:
    """How many nodes there are when every alias is written out; one inside itself is endless."""
    if id(node) not in known:
        known[id(node)] = MAX_NODES + 1  # if we meet it again before it is counted
        inner = [each for pair in node.value for each in pair] if isinstance(node, yaml.MappingNode) else node.value
        nodes = inner if isinstance(inner, list) else []
        known[id(node)] = 1 + sum(_size(each, known) for each in nodes)
    return known[id(node)]
