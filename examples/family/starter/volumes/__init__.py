"""Volumes on the command line: the verbs come from the registry."""

from __future__ import annotations

from starter.extensions import CliExtension

EXTENSION = CliExtension(examples={"project": "acme", "volume": "data", "server": "web-1"})
