"""What travels between this family's workflows and activities."""

from __future__ import annotations

from typing import Any

from domain.model import Grant, Model


class Task(Model):
    """An action to be carried out, or with `verbs` only these orders of it."""

    grant: Grant
    verbs: list[str] | None = None


class Work(Model):
    """What was done. `binned` and `unbinned` are the objects whose time in the recycle bin begins or ends."""

    message: str = ""
    to: str = ""
    info: dict[str, Any] = {}
    binned: list[str] = []
    unbinned: list[str] = []


class InBin(Model):
    """An object in the recycle bin: under which number, and for how long."""

    path: str
    number: int
    seconds: float


class Residents(Model):
    """The machines on a node: by path, whether each is running."""

    machines: dict[str, bool]
