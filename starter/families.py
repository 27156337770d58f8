"""The families on the command line: what `starter/<family>/` adds, for each family of the registry."""

from __future__ import annotations

from importlib import import_module

from domain import registry
from starter.extensions import CliExtension

EXTENSIONS: dict[str, CliExtension] = {
    family: import_module(f"starter.{family}").EXTENSION for family in registry.FAMILIES
}
REMARKS = {kind: remarks for extension in EXTENSIONS.values() for kind, remarks in extension.remarks.items()}
