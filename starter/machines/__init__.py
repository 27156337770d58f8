"""The machines family's commands: wait queues, and the demo."""

from __future__ import annotations

from cyclopts import App

from starter.extensions import CliExtension
from starter.machines import demo, queue

EXAMPLES = {
    "account": "acme",
    "cloudspace": "dev",
    "machine": "db",
    "disk": "d1",
    "image": "ubuntu",
    "node": "cpu-01",
    "snapshot": "before-upgrade",
}


def _extend_app(app: App) -> None:
    app.command(queue.app)


EXTENSION = CliExtension(extend=_extend_app, demo=demo.machines, examples=EXAMPLES)
