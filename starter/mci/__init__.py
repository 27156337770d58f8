"""The MCI family's commands, and additions to `explain`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from domain.mci.messages import CONTINUE, WITHDRAW
from domain.mci.tables import MciPhase, VmStatus
from domain.model import ObjectView
from domain.paths import parent_of, short_path
from starter.errors import ExitCode
from starter.extensions import CliExtension
from starter.mci.documents import mci_document, vm_document

if TYPE_CHECKING:
    from cyclopts import App

    from client.actions import ActionClient


async def hold_remarks(client: ActionClient, view: ObjectView) -> list[tuple[str, str]]:
    """Returns the commands for an MCI that holds: continue or withdraw. A paused or ended run hears neither."""
    if view.phase != MciPhase.PREPARED:
        return []
    run = await client.newest_run(view.path)
    if run is None or not run.is_open or run.describe_obstacle()[0]:
        return []
    go_on, give_up = (f"starter mci {word} {short_path(view.path)}" for word in (CONTINUE, WITHDRAW))
    return [("holding", f"go on: {go_on}; give up: {give_up}")]


async def vm_remarks(_asking: ActionClient, view: ObjectView) -> list[tuple[str, str]]:
    """Returns the command that asks the cloud what a Failed or Undefined VM is."""
    if view.phase not in (VmStatus.FAILED, VmStatus.UNDEFINED):
        return []
    group = short_path(parent_of(view.path) or view.path)
    return [
        ("unclear", f"ask the cloud what it is: starter mci reconcile {group}; remove it: starter mci refine {group}")
    ]


def _extend_app(app: App) -> None:
    from starter.mci.commands import extend_app  # it loads the parser, which a status does not need

    extend_app(app)


async def _demo() -> ExitCode:
    from starter.mci.demo import mci

    return await mci()


EXTENSION = CliExtension(
    documents={"mci": mci_document, "vm": vm_document},
    remarks={"mci": hold_remarks, "vm": vm_remarks},
    extend=_extend_app,
    demo=_demo,
    examples={"ns": "default", "mci": "web", "vm": "front-1", "subGroup": "front"},
)
