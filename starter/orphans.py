"""`starter orphans`: what lives at a provider under a path of ours, and that no record knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from domain import registry
from domain.errors import Category, Refused
from domain.orphans import Orphan, OrphanQuery, OrphansPage
from domain.wire import READ_ORPHANS
from starter import reads, terminal
from starter.actions import ActionOptions, run_action
from starter.errors import ExitCode
from starter.flags import OutputOption
from starter.output import Sheet, format_time, print_sheet
from starter.session import open_client

if TYPE_CHECKING:
    from client.actions import ActionClient

HEADINGS = ("PATH", "PROVIDER", "ID", "STATE", "SINCE", "ORDER", "RECORD")
READ_SECONDS = 600.0
OrphanNames = Annotated[tuple[str, ...], Parameter(help="The ids or paths of orphans, as the list shows them.")]

app = App(name="orphans", help="What lives outside and no record knows: VMs, machines, disks, hosts, services.")


@app.command(name="list")
async def list_orphans(
    path: Annotated[str, Parameter(help="Only at or below this object.")] = "", /, *, output: OutputOption = "table"
) -> ExitCode:
    """Ask every provider that the workers reach for what carries a path of ours and no record knows. Changes nothing.

    A creation that a provider carries out after its object was deleted leaves an orphan, and so does one that was
    ordered twice around a frozen worker. What an action is about just now is left out. ORDER is the token of the order
    that made it, or the number of the last action that ordered it; RECORD is what the record of that path is, if there
    is one: it is about another thing, or gone for good.

    Example: starter orphans list

    Example: starter orphans list default/web -o json
    """
    where = await reads.locate_object(path) if path else ""
    async with open_client() as client:
        found, silent = await list_all_orphans(client, where)
    for provider in silent:
        terminal.print_message(f"not asked: {provider}")
    cells = [
        (
            orphan.path,
            orphan.provider,
            orphan.id,
            orphan.state,
            format_time(orphan.since) if orphan.since else "",
            orphan.token,
            orphan.record,
        )
        for orphan in found
    ]
    data = {"orphans": [orphan.model_dump(mode="json") for orphan in found], "silent": silent}
    print_sheet(Sheet(data, HEADINGS, cells, [orphan.path for orphan in found], "there are no orphans"), output)
    return ExitCode.FAILED if found or silent else ExitCode.DONE


@app.command
async def remove(names: OrphanNames, /, *, options: ActionOptions = ActionOptions()) -> ExitCode:  # noqa: B008
    """Remove orphans at their providers, one action for each, under the locks of the path that it carries.

    Refused if a record calls it its own, or while an action runs on that path or above it.

    Example: starter orphans remove gcp-i-0a1b2c3d4e5f60718 --yes

    Example: starter orphans remove account:acme:cloudspace:dev:machine:db
    """
    ends = []
    for orphan in await _find_named_orphans(names, options):
        kind = registry.kind_at(orphan.target)
        if not kind.table.orphan_removal_action:
            message = f"nothing removes a {kind.table.label} that no record knows: {orphan.path}"
            raise Refused(Category.NOT_ALLOWED, message, f"remove it at its provider, {orphan.provider}")
        ends.append(
            await run_action(kind, orphan.target, kind.table.orphan_removal_action, options, {"place": orphan.provider})
        )
    return max(ends, default=ExitCode.DONE)


@app.command
async def adopt(names: OrphanNames, /, *, options: ActionOptions = ActionOptions()) -> ExitCode:  # noqa: B008
    """Give orphans to the records of the paths that they carry, one action for each. The providers are told nothing.

    Only a VM can be adopted. A record that is Failed or Undefined gets the VM, if its own is gone; one that is missing
    is made again, as today's subgroup of that name would order it. Refused if the MCI is gone, or if the place is not
    the record's.

    Example: starter orphans adopt gcp-i-0a1b2c3d4e5f60718
    """
    orphans = await _find_named_orphans(names, options)
    for orphan in orphans:
        if orphan.instead:
            message = f"{orphan.path} cannot be adopted: {orphan.instead}"
            raise Refused(Category.NOT_ALLOWED, message, f"to remove it: starter orphans remove {orphan.id}")
    ends = [
        await run_action(registry.kind_at(orphan.target), orphan.target, "adopt", options, {"place": orphan.provider})
        for orphan in orphans
    ]
    return max(ends, default=ExitCode.DONE)


async def _find_named_orphans(names: tuple[str, ...], options: ActionOptions) -> list[Orphan]:
    """The orphans that a person names, one for each target; Refused if a name fits none, or several targets."""
    if options.force:
        message = "an orphan takes no --force: whatever an action or a record may own is none"
        raise Refused(Category.INVALID, message, "wait for the action, or end it: starter cancel PATH")
    async with open_client() as client:
        found, _ = await list_all_orphans(client, "")
    orphans: dict[str, Orphan] = {}
    for name in names:
        fitting = {orphan.target: orphan for orphan in found if name in (orphan.id, orphan.path)}
        if not fitting:
            message = f"no orphan is called {name[:200]}"
            raise Refused(Category.NOT_FOUND, message, "see them with: starter orphans list")
        if len(fitting) > 1:
            message = f"{len(fitting)} orphans are called {name[:200]}"
            hint = (
                f"name one: "
                f"{', '.join(orphan.id if orphan.path == name else orphan.path for orphan in fitting.values())}"
            )
            raise Refused(Category.INVALID, message, hint)
        orphans |= fitting
    return list(orphans.values())


async def list_all_orphans(client: ActionClient, path: str) -> tuple[list[Orphan], list[str]]:
    """All orphans at or below a path, page by page, and the providers that did not answer."""
    found: list[Orphan] = []
    silent: list[str] = []
    after: Orphan | None = Orphan()
    while after is not None:
        page = await client.run_query(
            READ_ORPHANS, OrphanQuery(path=path, after=after), OrphansPage, seconds=READ_SECONDS
        )
        found, after = [*found, *page.orphans], page.after
        silent += [provider for provider in page.silent if provider not in silent]
    return found, silent
