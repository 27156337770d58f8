"""How a family shows itself on the command line, besides the verbs that are made from the registry."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cyclopts import App

from domain.model import ObjectView
from starter.errors import Exit

Document = Callable[[ObjectView, Sequence[ObjectView]], dict[str, Any]]


@dataclass(frozen=True)
class Face:
    documents: Mapping[str, Document] = field(default_factory=dict)  # by kind: the shape that its status is printed in
    extend: Callable[[App], None] | None = None  # adds commands of its own
    demo: Callable[[], Awaitable[Exit]] | None = None
    examples: Mapping[str, str] = field(default_factory=dict)  # names and values for examples in help texts
