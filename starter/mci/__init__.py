"""MCIs and VMs on the command line."""

from __future__ import annotations

from starter import demo
from starter.faces import Face
from starter.mci.commands import extend
from starter.mci.documents import mci_document, vm_document

FACE = Face(
    documents={"mci": mci_document, "vm": vm_document},
    extend=extend,
    demo=demo.mci,
    examples={"subGroup": "front"},
)
