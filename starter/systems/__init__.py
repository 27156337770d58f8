"""The systems family's commands and demo."""

from __future__ import annotations

from starter.extensions import CliExtension
from starter.systems import commands, definitions, demo

EXTENSION = CliExtension(
    extend=commands.extend_app,
    own_status=("system",),
    suggestions={"system": definitions.suggest_command, "part": definitions.suggest_command},
    demo=demo.systems,
    examples={"system": "shop", "part": "web", "deploy": "d1", "teardown": "t1"},
)
