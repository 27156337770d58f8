"""The list of families on the command line."""

from __future__ import annotations

from domain import edge as of_edge
from domain import leases as of_leases
from domain import machines as of_machines
from domain import mci as of_mci
from domain import systems as of_systems
from domain.kinds import Kind
from starter import edge, leases, machines, mci, systems
from starter.extensions import CliExtension
from starter.naming import EXAMPLES

EXTENSIONS: dict[str, CliExtension] = {
    "mci": mci.EXTENSION,
    "edge": edge.EXTENSION,
    "machines": machines.EXTENSION,
    "leases": leases.EXTENSION,
    "systems": systems.EXTENSION,
}

DOCUMENTS = {kind: document for extension in EXTENSIONS.values() for kind, document in extension.documents.items()}
REMARKS = {kind: remarks for extension in EXTENSIONS.values() for kind, remarks in extension.remarks.items()}

_KINDS: dict[str, tuple[Kind, ...]] = {
    "mci": of_mci.KINDS,
    "edge": of_edge.KINDS,
    "machines": of_machines.KINDS,
    "leases": of_leases.KINDS,
    "systems": of_systems.KINDS,
}
EXAMPLES.update({kind.name: EXTENSIONS[family].examples for family, kinds in _KINDS.items() for kind in kinds})
