"""Volumes: storage of a project, attached to one server at a time."""

from __future__ import annotations

from domain.volumes import specs
from domain.volumes.tables import VOLUME

from domain.kinds import Kind, Verb

OPERATE = "OperateVolume"  # names that cross the wire
QUEUE = "volumes"

KINDS: tuple[Kind, ...] = (
    Kind(
        table=VOLUME,
        scope=("project", "volume"),
        place_key="server",
        verbs=(
            Verb("create", OPERATE, "A new volume.", specs.NewVolume),
            Verb("attach", OPERATE, "Attach it to a server.", specs.Attach),
            Verb("detach", OPERATE, "Detach it from its server."),
            Verb("resize", OPERATE, "Make it larger.", specs.Resize),
            Verb("delete", OPERATE, "Delete it for good."),
        ),
        help="Volumes, which servers keep their data on.",
    ),
)
