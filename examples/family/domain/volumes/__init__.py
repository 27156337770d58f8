"""Volumes: storage of a project, attached to one server at a time."""

from __future__ import annotations

from domain.kinds import Kind, Verb, orphan_verb
from domain.simulated import is_always_simulated
from domain.volumes import specs
from domain.volumes.tables import VOLUME

OPERATE = "OperateVolume"  # names that cross the wire
QUEUE = "volumes"

KINDS: tuple[Kind, ...] = (
    Kind(
        table=VOLUME,
        scope=("project", "volume"),
        place_key="server",
        is_simulated=is_always_simulated,  # as long as there is no provider of real ones
        verbs=(
            Verb("create", OPERATE, "A new volume.", specs.NewVolume),
            Verb("attach", OPERATE, "Attach it to a server.", specs.Attach),
            Verb("detach", OPERATE, "Detach it from its server."),
            Verb("resize", OPERATE, "Make it larger.", specs.Resize),
            Verb("delete", OPERATE, "Delete it for good."),
            orphan_verb("Delete at the provider a volume that no record knows."),
        ),
        help="Volumes, which servers keep their data on.",
    ),
)
