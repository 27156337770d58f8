"""Machines and their neighbours on the command line: queues, and the demo."""

from __future__ import annotations

from cyclopts import App

from starter.faces import Face
from starter.machines import demo, queue

EXAMPLES = {
    "account": "acme",
    "cloudspace": "dev",
    "machine": "db",
    "disk": "d1",
    "image": "ubuntu",
    "node": "cpu-01",
}


def _extend(app: App) -> None:
    app.command(queue.app)


FACE = Face(extend=_extend, demo=demo.machines, examples=EXAMPLES)
