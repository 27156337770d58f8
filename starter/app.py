"""The whole command line: one noun per kind, and the commands that work on every kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from textwrap import wrap
from typing import Annotated, Literal

from cyclopts import App, Parameter

from domain import registry, rendering, wire
from domain.errors import Category, Refused
from starter import (
    actions,
    audit,
    builds,
    codec,
    connections,
    doctor,
    explain,
    faults,
    gateway,
    heal,
    identity,
    orphans,
    quotas,
    reads,
    screen,
    stack,
    terminal,
    verify,
)
from starter.dryrun import dry_run_action
from starter.errors import ExitCode
from starter.families import add_family, all_extensions
from starter.flags import OutputOption, WatchOption
from starter.kinds import DEFAULT_LIMIT, LimitOption, ObjectArg, Prefix, SpecFile, read_spec_file
from starter.naming import compose_request
from starter.output import align_columns, format_json
from starter.toplevel import LOOKING, RUNNING, STEERING, create_top_app
from starter.watch import run_once_or_watch

FOLD_WIDTH = 30  # the widest list of *from* statuses in one line
_DEMOS = {name: extension.demo for name, extension in all_extensions().items() if extension.demo} | {
    name: demo for extension in all_extensions().values() for name, demo in extension.more_demos.items()
}
Timeout = Annotated[str, Parameter(name="--timeout", help="Stop waiting after this long, such as 90s or 5m.")]
RunOption = Annotated[str, Parameter(help="Only this run, as --no-wait printed it.")]
KindName = Annotated[
    str, Parameter(help=f"One of: {', '.join(registry.KINDS)}.", completer=lambda _context: list(registry.KINDS))
]


def build_cli_app() -> App:
    """Builds the app, once. It imports nothing of Temporal, so that help is quick."""
    return _build_cli_app(terminal.typed_command())


@cache
def _build_cli_app(_typed: str) -> App:
    app = create_top_app()
    app.register_install_completion_command()
    for family in registry.FAMILIES:
        add_family(app, family)
    for group, commands in _COMMANDS_BY_GROUP.items():
        for command in commands:
            app.command(command, group=group)
    app.command(wait, name="attach", show=False)  # the old name, kept for one version
    app.command(list_kind, name="list", group=LOOKING)
    for steering in (heal.app, orphans.app, audit.app, identity.key_app, quotas.quota_app):
        steering.group = (STEERING,)
        app.command(steering)
    cloud = App(name="cloud", help="The simulated clouds.", group=RUNNING)
    cloud.command(faults.app)
    app.command(cloud)
    build = App(name="build", help="Builds of versioned workers, to upgrade with actions in flight.", group=RUNNING)
    build.command(builds.list_builds, name="list")
    build.command(builds.promote)
    app.command(build)
    return app


async def get(path: ObjectArg, /, *, watch: WatchOption = False, output: OutputOption = "table") -> ExitCode:
    """Everything stored about one object.

    Example: starter get ns:default:mci:web -o yaml
    """
    where = await reads.locate_object(path)
    return await run_once_or_watch(watch, lambda: reads.print_object(where, output))


async def list_kind(
    kind: KindName,
    /,
    *,
    prefix: Prefix = "",
    limit: LimitOption = DEFAULT_LIMIT,
    watch: WatchOption = False,
    output: OutputOption = "table",
) -> ExitCode:
    """Every object of a kind.

    Example: starter list vm --prefix default/web
    """
    found = registry.find_kind(kind)
    return await run_once_or_watch(watch, lambda: reads.print_objects(found, prefix, limit, output))


async def history(
    path: ObjectArg,
    /,
    *,
    limit: LimitOption = DEFAULT_LIMIT,
    watch: WatchOption = False,
    output: OutputOption = "table",
) -> ExitCode:
    """What happened to an object: every change, and every message that was ignored.

    Example: starter history default/web
    """
    where = await reads.locate_object(path)
    return await run_once_or_watch(watch, lambda: reads.print_history(where, limit, output))


async def locks(
    path: Annotated[str, Parameter(help="At or below this.")] = "",
    /,
    *,
    watch: WatchOption = False,
    output: OutputOption = "table",
) -> ExitCode:
    """Print the locks, and the actions that hold them.

    Example: starter locks default/web
    """
    where = await reads.locate_object(path) if path else ""
    return await run_once_or_watch(watch, lambda: reads.print_locks(where, output))


async def states(
    kind: KindName,
    /,
    *,
    output: Annotated[
        Literal["table", "json", "mermaid", "markdown"], Parameter(name=["--output", "-o"], help="How to print it.")
    ] = "table",
) -> ExitCode:
    """The state table of a kind: which action leads from which status to which. Works without a server.

    Example: starter states vm -o mermaid
    """
    table = registry.find_kind(kind).table
    if output == "mermaid":
        terminal.print_data(rendering.mermaid_diagram(table))
    elif output == "markdown":
        terminal.print_data(rendering.markdown_table(table))
    elif output == "json":
        terminal.print_data(
            format_json([dict(zip(rendering.HEADINGS, rendering.row_cells(row), strict=True)) for row in table.rows])
        )
    else:
        lines = rendering.merged_rows(table)
        if terminal.terminal_width() is not None:
            lines = list(_wrap_long_rows(lines))
        terminal.print_data("\n".join(align_columns([[word.upper() for word in rendering.HEADINGS], *lines])))
    return ExitCode.DONE


def _wrap_long_rows(lines: Iterable[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """Puts long lists of *from* statuses on several lines, to fit a terminal."""
    for action, sources, *rest in lines:
        first, *others = wrap(sources, FOLD_WIDTH)
        yield (action, first, *rest)
        yield from ((" ", each, *(" " for _ in rest)) for each in others)


async def schema(
    kind: KindName, action: Annotated[str, Parameter(help="The action; usually the first that takes a spec.")] = "", /
) -> ExitCode:
    """The JSON Schema of a spec file, for editors that complete and check. Works without a server.

    Example: starter schema mci
    """
    found = registry.find_kind(kind)
    verbs = [found.find_verb(action)] if action else [verb for verb in found.verbs if verb.spec]
    if not verbs or verbs[0].spec is None:
        raise Refused(Category.INVALID, f"{action or kind} takes no spec", f"starter {kind} --help")
    terminal.print_data(format_json(verbs[0].spec.model_json_schema()))
    return ExitCode.DONE


async def check(
    path: ObjectArg,
    action: Annotated[str, Parameter(help="The action, such as suspend.")],
    /,
    *,
    force: Annotated[bool, Parameter(negative="", help="As if asked with --force.")] = False,
    file: SpecFile = "",
    output: OutputOption = "table",
) -> ExitCode:
    """Would this action be allowed now? If not, why not. Nothing is changed.

    Example: starter check default/web suspend
    """
    spec = read_spec_file(file)  # before anything is asked
    request = compose_request(await reads.locate_object(path), action, force=force, spec=spec)
    return await dry_run_action(registry.kind_at(request.path), request, output)


async def demo(
    family: Annotated[str, Parameter(help=f"One of: {', '.join(_DEMOS)}.")] = next(iter(_DEMOS)), /
) -> ExitCode:
    """A live demo of a family on simulated infrastructure; with no name, six VMs in three clouds. `metal` needs Ironic.

    Example: starter demo mci
    """
    if family not in _DEMOS:
        raise Refused(Category.INVALID, f"no demo is called {family[:40]!r}", f"demos are: {', '.join(_DEMOS)}")
    return await _DEMOS[family]()


async def wait(
    path: ObjectArg, /, *, run: RunOption = "", within: Timeout = "", output: OutputOption = "table"
) -> ExitCode:
    """Wait for the action that runs on an object; if none does, print the outcome of the last one.

    Example: starter wait default/web
    Example: starter wait default/web --run 019a8f2e-5f0c-7d43-9a63-0a7f6c1f2b11
    """
    seconds = actions.parse_duration(within)
    return await actions.wait_for_action(await reads.locate_object(path), seconds, output, run)


async def cancel(path: ObjectArg, /, *, within: Timeout = "", output: OutputOption = "table") -> ExitCode:
    """Ask the action that runs on an object to clean up and end, and wait until it has.

    Example: starter cancel default/web
    """
    from client.errors import NoWorker

    try:
        return await actions.cancel_action(await reads.locate_object(path), actions.parse_duration(within), output)
    except NoWorker as error:
        raise NoWorker(wire.ACTIONS_QUEUE, actions.CANCEL_HINT) from error


_COMMANDS_BY_GROUP = {
    LOOKING: (
        get,
        history,
        locks,
        states,
        schema,
        explain.explain,
        screen.tui,
        verify.verify,
        identity.whoami,
        identity.can,
    ),
    STEERING: (check, wait, cancel, identity.sign, identity.login, identity.logout),
    RUNNING: (
        *(demo, stack.up, stack.worker, gateway.gateway, gateway.token, connections.connections),
        *(doctor.doctor, stack.setup, stack.migrate, codec.codec),
    ),
}
