"""The noun-verb commands, made from the registry: a new kind or verb needs no code here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Annotated, Any

from cyclopts import App, Group, Parameter
from pydantic import BaseModel

from domain import registry
from domain.paths import expand_path
from starter import actions, completion, reads
from starter.actions import ActionOptions
from starter.errors import ExitCode
from starter.extensions import CliExtension
from starter.flags import OutputOption, WatchOption
from starter.options import add_spec_options, flag_name, needs_spec_file, required_fields
from starter.output import Output
from starter.watch import run_once_or_watch

CliCommand = Callable[..., Awaitable[ExitCode]]

ObjectArg = Annotated[
    str, Parameter(help="The object: a path, or its names with slashes.", completer=completion.object_completer())
]
SpecFile = Annotated[
    str, Parameter(name=["--file", "-f"], allow_leading_hyphen=True, help="A YAML or JSON file; - is stdin.")
]
Prefix = Annotated[str, Parameter(help="Only objects at or below this path.")]
LimitOption = Annotated[int, Parameter(name=["--limit", "-n"], help="At most so many.")]

DEFAULT_LIMIT = 1_000


def build_kind_app(kind: registry.Kind, group: Group, extension: CliExtension) -> App:
    """Builds the commands of one kind. Its family's extension formats statuses and gives example names."""
    app = App(name=kind.name, help=kind.help, group=group, show=not kind.has_own_command)
    for verb in kind.verbs:
        app.command(_action_command(kind, verb, extension), name=verb.action, show=not verb.is_internal)
    app.command(_status_command(kind, extension), name="status")
    app.command(_list_command(kind, extension), name="list")
    return app


def _action_command(kind: registry.Kind, verb: registry.Verb, extension: CliExtension) -> CliCommand:
    async def run_action_command(target: ObjectArg, /, *, options: ActionOptions = ActionOptions()) -> ExitCode:  # noqa: B008  frozen
        return await actions.run_action(kind, expand_path(target, kind.scope), verb.action, options, None)

    words = f"{kind.name} {verb.action} {extension.example_path(kind)}"
    if verb.spec is None:
        return set_command_help(run_action_command, verb.help, words)
    return _action_command_with_spec(kind, verb, verb.spec, words, extension)


def _action_command_with_spec(
    kind: registry.Kind, verb: registry.Verb, spec: type[BaseModel], words: str, extension: CliExtension
) -> CliCommand:
    async def act(
        target: ObjectArg,
        /,
        *,
        file: SpecFile = "",
        options: ActionOptions = ActionOptions(),  # noqa: B008  frozen
        **given: Any,
    ) -> ExitCode:
        told = {**(read_spec_file(file) or {}), **{name: value for name, value in given.items() if value is not None}}
        if complete := extension.complete_spec.get(kind.name):
            told = complete(told)
        return await actions.run_action(kind, expand_path(target, kind.scope), verb.action, options, told or None)

    if needs_spec_file(spec):
        words += f" -f examples/{kind.name}-demo.yaml"
    else:
        words += "".join(f" {flag_name(name)} {extension.examples.get(name, '...')}" for name in required_fields(spec))
    return set_command_help(add_spec_options(act, spec), verb.help, words)


def _status_command(kind: registry.Kind, extension: CliExtension) -> CliCommand:
    parts = f" and of each {registry.find_kind(kind.member).table.label}" if kind.member else ""
    words = f"{kind.name} status {extension.example_path(kind)} -o json"

    async def print_status(path: str, output: Output) -> ExitCode:
        return await reads.print_status(path, output)

    return view_command(kind.scope, print_status, f"The status of one {kind.table.label}{parts}.", words)


def _list_command(kind: registry.Kind, extension: CliExtension) -> CliCommand:
    first, inner, _ = extension.example_path(kind).partition("/")
    words = f"{kind.name} list --prefix {first}" if inner else f"{kind.name} list"
    return list_command(partial(reads.print_objects, kind), f"Every {kind.table.label} there is.", words)


def view_command(
    scope: Sequence[str], look: Callable[[str, Output], Awaitable[ExitCode]], what: str, words: str
) -> CliCommand:
    """Returns a command that prints one object of this scope, given its path."""

    async def view(target: ObjectArg, /, *, watch: WatchOption = False, output: OutputOption = "table") -> ExitCode:
        path = expand_path(target, scope)
        return await run_once_or_watch(watch, lambda: look(path, output))

    return set_command_help(view, what, words)


def list_command(look: Callable[[str, int, Output], Awaitable[ExitCode]], what: str, words: str) -> CliCommand:
    """Returns a command that prints the objects below a prefix, up to a limit."""

    async def list_objects(
        *,
        prefix: Prefix = "",
        limit: LimitOption = DEFAULT_LIMIT,
        watch: WatchOption = False,
        output: OutputOption = "table",
    ) -> ExitCode:
        return await run_once_or_watch(watch, lambda: look(prefix, limit, output))

    return set_command_help(list_objects, what, words)


def read_spec_file(file: str) -> dict[str, Any] | None:
    """Returns the spec in a file; None without a file."""
    from starter.spec import read_spec  # imported late: help does not need YAML

    return read_spec(file) if file else None


def set_command_help(command: CliCommand, what: str, words: str) -> CliCommand:
    """Sets a command's help: a description and an example."""
    command.__doc__ = f"{what}\n\nExample: starter {words}"
    return command
