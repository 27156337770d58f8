"""The families on the command line: a line for each."""

from __future__ import annotations

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

for _face in FACES.values():
    EXAMPLES.update(_face.examples)
