"""`starter orphans`: VMs that live in a cloud with a path of ours, and that no record knows."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from domain.mci.messages import READ_ORPHANS, Orphan, OrphanQuery, Orphans
from starter import reads, terminal
from starter.errors import Exit
from starter.output import OutputOption, Sheet, show
from starter.session import session

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
    found: list[Orphan] = []
    silent: list[str] = []
    after: Orphan | None = Orphan()
    async with session() as asking:
        while after is not None:
            page = await asking.read(READ_ORPHANS, OrphanQuery(path=where, after=after), Orphans, seconds=SECONDS)
            found, after = [*found, *page.orphans], page.after
            silent += [place for place in page.silent if place not in silent]
    for place in silent:
        terminal.say(f"not asked: {place}")
    cells = [(each.path, each.place, each.cloud_id, each.state, each.record) for each in found]
    data = {"orphans": [each.model_dump(mode="json") for each in found], "silent": silent}
    show(Sheet(data, HEADINGS, cells, [each.path for each in found], "there are no orphans"), output)
    return Exit.FAILED if found or silent else Exit.DONE
