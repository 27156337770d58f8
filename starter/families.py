"""The families on the command line: a line for each."""

from __future__ import annotations

from domain import edge as of_edge
from domain import leases as of_leases
from domain import machines as of_machines
from domain import mci as of_mci
from domain import systems as of_systems
from domain.kinds import Kind
from starter import edge, leases, machines, mci, systems
from starter.faces import Face
from starter.naming import EXAMPLES

FACES: dict[str, Face] = {
    "mci": mci.FACE,
    "edge": edge.FACE,
    "machines": machines.FACE,
    "leases": leases.FACE,
    "systems": systems.FACE,
}

DOCUMENTS = {kind: document for face in FACES.values() for kind, document in face.documents.items()}
REMARKS = {kind: remarks for face in FACES.values() for kind, remarks in face.remarks.items()}

_KINDS: dict[str, tuple[Kind, ...]] = {
    "mci": of_mci.KINDS,
    "edge": of_edge.KINDS,
    "machines": of_machines.KINDS,
    "leases": of_leases.KINDS,
    "systems": of_systems.KINDS,
}
EXAMPLES.update({kind.name: FACES[family].examples for family, kinds in _KINDS.items() for kind in kinds})
