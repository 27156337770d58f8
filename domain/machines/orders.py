"""What an action does at the hypervisor: its orders, and the related objects that it moves along, stage by stage.

Everything here is data. A stage is either orders for the object itself, or an action that related objects go through.
Stages run one after the other, the objects of one stage concurrently.
"""

from __future__ import annotations

from dataclasses import dataclass

from domain.machines.ports import STATE_AFTER_VERB
from domain.machines.tables import GONE_STATUSES, TABLES, S
from domain.statetable import Actor


@dataclass(frozen=True)
class OwnStage:
    """A stage of orders for the object itself."""

    verbs: tuple[str, ...]


@dataclass(frozen=True)
class RelatedStage:
    """A stage that moves related objects through an action: those below the object, or those named at begin."""

    kind: str
    action: str
    named: bool = False


ActionStage = OwnStage | RelatedStage

# The orders for an action, by the status that the object came from; `*` is any other. An action that is not listed is
# the order of the same name, if its kind has that one.
# fmt: off
_VERBS_OF_ACTIONS: dict[tuple[str, str], dict[str, tuple[str, ...]]] = {
    ("machine", "deploy"):     {"*": ("create",)},
    ("machine", "delete"):     {"*": ("stop", "delete"), S.HALTED: ("delete",), S.VIRTUAL: ()},
    ("machine", "destroy"):    {"*": ("stop", "delete", "destroy"), S.HALTED: ("delete", "destroy"),
                                S.DELETED: ("destroy",), S.VIRTUAL: ()},
    ("cloudspace", "deploy"):  {"*": ("create",)},
    ("cloudspace", "delete"):  {"*": ("delete",), S.VIRTUAL: ()},
    ("cloudspace", "destroy"): {"*": ("delete", "destroy"), S.DELETED: ("destroy",), S.VIRTUAL: ()},
    ("disk", "deploy"):        {"*": ("create",)},
    ("disk", "assign"):        {"*": ("create", "attach")},
    ("disk", "delete"):        {"*": ("delete",), S.MODELED: ()},
    ("disk", "destroy"):       {"*": ("delete", "destroy"), S.ASSIGNED: ("detach", "delete", "destroy"),
                                S.TOBEDELETED: ("detach", "destroy"), S.DELETED: ("destroy",), S.MODELED: ()},
    ("image", "deploy"):       {"*": ("create",)},
    ("image", "delete"):       {"*": ("delete",), S.VIRTUAL: ()},
    ("image", "destroy"):      {"*": ("delete", "destroy"), S.DELETED: ("destroy",), S.VIRTUAL: ()},
}

# The objects that an action takes along. `named`: chosen at begin, such as the disks attached then.
_RELATED_STAGES: dict[tuple[str, str], tuple[RelatedStage, ...]] = {
    ("machine", "add-disk"):    (RelatedStage("disk", "assign", named=True),),
    ("machine", "attach-disk"): (RelatedStage("disk", "attach", named=True),),
    ("machine", "detach-disk"): (RelatedStage("disk", "detach", named=True),),
    ("machine", "delete"):      (RelatedStage("disk", "delete", named=True),),
    ("machine", "restore"):     (RelatedStage("disk", "restore", named=True),),
    ("machine", "destroy"):     (RelatedStage("disk", "destroy", named=True),),
    ("disk", "assign"):         (RelatedStage("machine", "add-disk", named=True),),
    ("disk", "attach"):         (RelatedStage("machine", "attach-disk", named=True),),
    ("disk", "detach"):         (RelatedStage("machine", "detach-disk", named=True),),
    ("cloudspace", "delete"):   (RelatedStage("machine", "delete"), RelatedStage("disk", "delete", named=True)),
    ("cloudspace", "restore"):  (RelatedStage("machine", "restore"), RelatedStage("disk", "restore", named=True)),
    ("cloudspace", "destroy"):  (RelatedStage("disk", "destroy", named=True), RelatedStage("machine", "destroy")),
    ("account", "disable"):     (RelatedStage("machine", "stop"), RelatedStage("cloudspace", "pause")),
    ("account", "enable"):      (RelatedStage("cloudspace", "resume", named=True),),
    ("account", "delete"):      (
        RelatedStage("machine", "delete"), RelatedStage("disk", "delete"), RelatedStage("cloudspace", "delete")),
    ("account", "destroy"):     (RelatedStage("machine", "destroy"), RelatedStage("disk", "destroy"),
                                 RelatedStage("cloudspace", "destroy")),
}
# fmt: on

# Orders that come before other objects are taken along: a machine stops before its disks are detached, and a network
# exists before its machines do.
_OWN_STAGE_FIRST = {("machine", "stop"), ("cloudspace", "restore")}


def hypervisor_verbs(kind: str, action: str, came_from: str) -> tuple[str, ...]:
    """Returns an action's orders to the hypervisor, in sequence."""
    same_name = (action,) if action in STATE_AFTER_VERB[kind] else ()
    orders = _VERBS_OF_ACTIONS.get((kind, action), {"*": same_name})
    return orders.get(came_from, orders["*"])


def action_stages(kind: str, action: str, came_from: str) -> tuple[ActionStage, ...]:
    """Returns all stages of an action: orders that must come first, then related objects, then the other orders."""
    own, along = hypervisor_verbs(kind, action, came_from), _RELATED_STAGES.get((kind, action), ())
    if not along:
        return (OwnStage(own),)
    first = own[:1] if own and (kind, own[0]) in _OWN_STAGE_FIRST else ()
    return (*([OwnStage(first)] if first else []), *along, OwnStage(own[len(first) :]))


def related_status_during(kind: str, action: str, status: str) -> str:
    """Returns a related object's status during an action; empty if its own status does not allow the action.

    A record without a real object is not moved into the recycle bin, as it could not be restored from there.
    """
    for row in TABLES[kind].rows:
        if row.action == "delete" and row.then in GONE_STATUSES:
            continue
        if row.action == action and row.source == status and row.during and row.actor in (Actor.USER, Actor.GROUP):
            return str(row.during)
    return ""


def related_status_after(kind: str, action: str, came_from: str) -> str:
    """Returns a related object's status after the action's success."""
    rows = TABLES[kind].rows
    return next(row.success_status(came_from) for row in rows if row.action == action and row.source == came_from)
