"""Which actions begin would admit on an object now, with and without --force; for `explain` and the full screen."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from domain import registry
from domain.errors import Category, Refused
from domain.model import ObjectView, Request
from domain.statetable import Ruling
from starter.options import required_options

if TYPE_CHECKING:
    from client.actions import ActionClient


@dataclass
class PossibleActions:
    """The verbs that are allowed now, those that need --force, and who is in the way of the others."""

    allowed: list[registry.Verb] = field(default_factory=list)
    forced: list[registry.Verb] = field(default_factory=list)
    obstacles: dict[str, None] = field(default_factory=dict)

    @property
    def options(self) -> dict[str, str]:
        """The options that each of these actions needs, by action."""
        words = {verb.action: needed_options(verb) for verb in self.allowed}
        return words | {verb.action: f"{needed_options(verb)} --force".strip() for verb in self.forced}


async def find_possible_actions(client: ActionClient, view: ObjectView) -> PossibleActions:
    """Dry-runs each verb that people may request. One that needs options counts as allowed if its table says so."""
    kind = registry.find_kind(view.kind)
    found = PossibleActions()
    for verb in (verb for verb in kind.verbs if verb.action in kind.offered_actions):
        refusal = await _dry_run_refusal(client, Request(path=view.path, action=verb.action))
        in_table = verb.action in kind.table.allowed_actions(view.phase)
        if refusal is None or (refusal.category is Category.INVALID and in_table):
            found.allowed.append(verb)
        elif refusal.category is Category.CONFLICT:
            found.obstacles[refusal.message] = None
        elif not await _dry_run_refusal(client, Request(path=view.path, action=verb.action, force=True)):
            found.forced.append(verb)
    return found


def needed_options(verb: registry.Verb) -> str:
    """Returns the options without which the verb is refused, with placeholders."""
    return required_options(verb.spec) if verb.spec else ""


async def _dry_run_refusal(client: ActionClient, request: Request) -> Refused | None:
    """Returns the refusal of a dry run, if any. An action with nothing to do counts as refused."""
    try:
        admission = await client.check_request(request)
    except Refused as refused:
        return refused
    if admission.grant and admission.grant.ruling is Ruling.ALREADY:
        return Refused(Category.NOT_ALLOWED, "nothing to do")
    return admission.refusal.to_error() if admission.refusal else None
