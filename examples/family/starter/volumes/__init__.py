"""Volumes on the command line: the verbs come from the registry."""

from __future__ import annotations

from starter.extensions import CliExtension
from starter.volumes import demo

EXTENSION = CliExtension(demo=demo.volumes, examples={"project": "acme", "volume": "data", "server": "web-1"})
