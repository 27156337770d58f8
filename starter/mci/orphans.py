"""`starter orphans`: lists, removes and adopts VMs that carry a path of ours and that no record knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from domain import registry
from domain.errors import Category, Refused
from domain.mci.messages import READ_ORPHANS, Orphan, OrphanQuery, Orphans
from starter import reads, terminal
from starter.actions import Options, act
from starter.errors import Exit
from starter.output import OutputOption, Sheet, show
from starter.session import session

if TYPE_CHECKING:
    from client.actions import ActionClient

HEADINGS = ("PATH", "PLACE", "CLOUD ID", "STATE", "RECORD")
SECONDS = 600.0

app = App(name="orphans", help="VMs in the clouds that no record knows.")


@app.command(name="list")
async def list_orphans(
    path: Annotated[str, Parameter(help="Only at or below this object.")] = "", /, *, output: OutputOption = "table"
) -> Exit:
    """Ask every place that the workers reach for VMs with a path of ours that no record knows. Changes nothing.

    A creation that a cloud carries out after its MCI was deleted leaves such VMs, and so does one that was ordered
    twice around a frozen worker. RECORD says what the record of that path is, if there is one: it is about another VM.

    Example: starter orphans list

    Example: starter orphans list default/web -o json
    """
    where = await reads.locate(path) if path else ""
    async with session() as asking:
        found, silent = await every_orphan(asking, where)
    for place in silent:
        terminal.say(f"not asked: {place}")
    cells = [(each.path, each.place, each.cloud_id, each.state, each.record) for each in found]
    data = {"orphans": [each.model_dump(mode="json") for each in found], "silent": silent}
    show(Sheet(data, HEADINGS, cells, [each.path for each in found], "there are no orphans"), output)
    return Exit.FAILED if found or silent else Exit.DONE


@app.command
async def remove(
    ids: Annotated[tuple[str, ...], Parameter(help="The cloud ids of orphans, as the list shows them.")],
    /,
    *,
    options: Options = Options(),  # noqa: B008
) -> Exit:
    """Terminate orphans in their clouds, one action for each, under the locks of the path that it carries.

    Refused if a record calls the VM its own, or while an action runs on that path or above it.

    Example: starter orphans remove gcp-i-0a1b2c3d4e5f60718 --yes
    """
    return await _each("remove", ids, options)


@app.command
async def adopt(
    ids: Annotated[tuple[str, ...], Parameter(help="The cloud ids of orphans, as the list shows them.")],
    /,
    *,
    options: Options = Options(),  # noqa: B008
) -> Exit:
    """Give orphans to the records of the paths that they carry, one action for each. The clouds are told nothing.

    A record that is Failed or Undefined gets the VM, if its own is gone; one that is missing is made again, as today's
    subgroup of that name would order it. Refused if the MCI is gone, or if the place is not the record's.

    Example: starter orphans adopt gcp-i-0a1b2c3d4e5f60718
    """
    return await _each("adopt", ids, options)


async def _each(action: str, ids: tuple[str, ...], options: Options) -> Exit:
    async with session() as asking:
        found, _ = await every_orphan(asking, "")
    known = {each.cloud_id: each for each in found}
    if unknown := [cloud_id for cloud_id in ids if cloud_id not in known]:
        message = f"no orphan is called {', '.join(unknown)[:200]}"
        raise Refused(Category.NOT_FOUND, message, "see them with: starter orphans list")
    kind, ends = registry.kind("orphan"), []
    for orphan in (known[cloud_id] for cloud_id in ids):
        path = f"{orphan.path}:orphan:{orphan.cloud_id}"
        ends.append(await act(kind, path, action, options, {"place": orphan.place}))
    return max(ends, default=Exit.DONE)


async def every_orphan(asking: ActionClient, path: str) -> tuple[list[Orphan], list[str]]:
    """Returns all orphans at or below a path, page by page, and the places that did not answer."""
    found: list[Orphan] = []
    silent: list[str] = []
    after: Orphan | None = Orphan()
    while after is not None:
        page = await asking.read(READ_ORPHANS, OrphanQuery(path=path, after=after), Orphans, seconds=SECONDS)
        found, after = [*found, *page.orphans], page.after
        silent += [place for place in page.silent if place not in silent]
    return found, silent
