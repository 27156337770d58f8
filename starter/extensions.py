"""What a family adds to the command line, besides the verbs made from the registry."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from domain import registry
from domain.kinds import Kind
from domain.model import ObjectView
from domain.paths import build_path, short_path
from starter.errors import ExitCode
from starter.firstlines import FAMILY_OF_COMMAND

if TYPE_CHECKING:
    from cyclopts import App

    from client.actions import ActionClient

FormatDocument = Callable[[ObjectView, Sequence[ObjectView]], dict[str, Any]]
CompleteSpec = Callable[[dict[str, Any]], dict[str, Any]]
SuggestCommand = Callable[["ActionClient", ObjectView], Awaitable[str]]
ListRemarks = Callable[["ActionClient", ObjectView], Awaitable[list[tuple[str, str]]]]


@dataclass(frozen=True)
class CliExtension:
    """A family's additions to the CLI; by kind, `documents` format a status and `remarks` extend `explain`."""

    documents: Mapping[str, FormatDocument] = field(default_factory=dict)
    remarks: Mapping[str, ListRemarks] = field(default_factory=dict)
    suggestions: Mapping[str, SuggestCommand] = field(default_factory=dict)  # by kind: what `explain` begins with
    extend: Callable[[App], None] | None = None  # adds commands of its own
    demo: Callable[[], Awaitable[ExitCode]] | None = None
    more_demos: Mapping[str, Callable[[], Awaitable[ExitCode]]] = field(default_factory=dict)  # by name
    examples: Mapping[str, str] = field(default_factory=dict)  # names and values for examples in help texts
    own_status: tuple[str, ...] = ()  # kinds whose `status OBJECT` prints something else than `reads.print_status`
    complete_spec: Mapping[str, CompleteSpec] = field(default_factory=dict)  # by kind: what only this machine knows

    def example_path(self, kind: Kind) -> str:
        """An example path of this kind, in the short form that users type."""
        return short_path(build_path(kind.scope, [self.examples.get(word, f"{word}-1") for word in kind.scope]))


@cache
def find_extension(family: str) -> CliExtension:
    """Imports a family's additions."""
    extension: CliExtension = import_module(f"starter.{family}").EXTENSION
    return extension


def extension_of_kind(kind: str) -> CliExtension:
    """Imports the additions of the kind's family only."""
    family = FAMILY_OF_COMMAND.get(kind) or next(
        name
        for name, kinds in registry.FAMILIES.items()
        if registry.find_kind(kind) in kinds  # of a family that is not listed yet
    )
    return find_extension(family)
