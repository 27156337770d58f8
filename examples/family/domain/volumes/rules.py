"""The pure functions of the family: which order an action gives, which status a description means, what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from domain.errors import Category, Refused
from domain.model import ObjectView
from domain.singleorder import ABSENT, ObjectFacts, OrderRules, OrderTask
from domain.statetable import NONE
from domain.volumes.specs import NewVolume
from domain.volumes.tables import S

STATUSES = {ABSENT: NONE, "free": S.AVAILABLE, "attached": S.IN_USE}


def order_for(task: OrderTask, view: ObjectView) -> tuple[str, Mapping[str, Any]]:
    """The verbs of the provider are those of the table. A creation takes its size from the record."""
    about = NewVolume.model_validate(view.spec).model_dump() if task.grant.action == "create" else task.spec
    return task.grant.action, about


def status_from(facts: ObjectFacts) -> str:
    """Returns the stable status for the provider's facts."""
    return STATUSES[facts.state]


def refuse_to_shrink(path: str, size: int, wanted: int) -> None:
    """Refuses a resize to less than a volume has."""
    if wanted <= size:
        message = f"{path} has {size} GiB: a volume only grows"
        raise Refused(Category.INVALID, message, f"ask for more than {size} GiB")


RULES = OrderRules(order_for, status_from, uncertain_states=(S.FAILED,))
