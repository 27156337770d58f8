"""The noun-verb commands, made from the registry: a new kind or verb needs no code here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any

from cyclopts import App, Group, Parameter
from pydantic import BaseModel

from domain import registry
from domain.paths import expand
from starter import actions, completing, reads
from starter.actions import Options
from starter.errors import Exit
from starter.extensions import CliExtension
from starter.options import flag, needed, needs_file, spec_options, with_options
from starter.output import OutputOption
from starter.watching import WatchOption, watching

CliCommand = Callable[..., Awaitable[Exit]]

ObjectArg = Annotated[
    str, Parameter(help="The object: a path, or its names with slashes.", completer=completing.objects())
]
SpecFile = Annotated[
    str, Parameter(name=["--file", "-f"], allow_leading_hyphen=True, help="A YAML or JSON file; - is stdin.")
]
Prefix = Annotated[str, Parameter(help="Only objects at or below this path.")]
Limit = Annotated[int, Parameter(name=["--limit", "-n"], help="At most so many.")]

DEFAULT_LIMIT = 1_000


def noun(kind: registry.Kind, group: Group, extension: CliExtension) -> App:
    """The commands of one kind. Its family's extension formats a printed status, and has names for examples."""
    app = App(name=kind.name, help=kind.help, group=group, show=not kind.apart)
    for verb in kind.verbs:
        app.command(_acting(kind, verb, extension), name=verb.action, show=not verb.hidden)
    app.command(_status(kind, extension), name="status")
    app.command(_list(kind, extension), name="list")
    return app


def _acting(kind: registry.Kind, verb: registry.Verb, extension: CliExtension) -> CliCommand:
    async def act_on(target: ObjectArg, /, *, options: Options = Options()) -> Exit:  # noqa: B008  frozen
        return await actions.act(kind, expand(target, kind.scope), verb.action, options, None)

    words = f"{kind.name} {verb.action} {extension.example(kind)}"
    if verb.spec is None:
        return described(act_on, verb.help, words)
    return _acting_with_spec(kind, verb, verb.spec, words, extension.examples)


def _acting_with_spec(
    kind: registry.Kind, verb: registry.Verb, spec: type[BaseModel], words: str, examples: Mapping[str, str]
) -> CliCommand:
    async def act_with_spec(
        target: ObjectArg,
        /,
        *,
        file: SpecFile = "",
        options: Options = Options(),  # noqa: B008  frozen
        **given: Any,
    ) -> Exit:
        told = {**(spec_in(file) or {}), **{name: value for name, value in given.items() if value is not None}}
        return await actions.act(kind, expand(target, kind.scope), verb.action, options, told or None)

    async def act_with_file(
        target: ObjectArg,
        /,
        *,
        file: SpecFile,
        options: Options = Options(),  # noqa: B008
        **given: Any,
    ) -> Exit:
        return await act_with_spec(target, file=file, options=options, **given)

    if needs_file(spec):
        command, words = act_with_file, f"{words} -f examples/{kind.name}-demo.yaml"
    else:
        command = act_with_spec
        words += "".join(f" {flag(name)} {examples.get(name, '...')}" for name in needed(spec))
    return described(with_options(command, spec_options(spec)), verb.help, words)


def _status(kind: registry.Kind, extension: CliExtension) -> CliCommand:
    async def status(target: ObjectArg, /, *, watch: WatchOption = False, output: OutputOption = "table") -> Exit:
        path = expand(target, kind.scope)
        return await watching(watch, lambda: reads.status(kind, path, output, extension.documents.get(kind.name)))

    parts = f" and of each {registry.kind(kind.member).table.label}" if kind.member else ""
    words = f"{kind.name} status {extension.example(kind)} -o json"
    return described(status, f"The status of one {kind.table.label}{parts}.", words)


def _list(kind: registry.Kind, extension: CliExtension) -> CliCommand:
    async def list_them(
        *, prefix: Prefix = "", limit: Limit = DEFAULT_LIMIT, watch: WatchOption = False, output: OutputOption = "table"
    ) -> Exit:
        return await watching(watch, lambda: reads.list_objects(kind, prefix, limit, output))

    first, inner, _ = extension.example(kind).partition("/")
    words = f"{kind.name} list --prefix {first}" if inner else f"{kind.name} list"
    return described(list_them, f"Every {kind.table.label} there is.", words)


def spec_in(file: str) -> dict[str, Any] | None:
    """Returns the spec in a file; None without a file."""
    from starter.spec import read_spec  # imported late: help does not need YAML

    return read_spec(file) if file else None


def described(command: CliCommand, what: str, words: str) -> CliCommand:
    """Sets a command's help: a description and an example."""
    command.__doc__ = f"{what}\n\nExample: starter {words}"
    return command
