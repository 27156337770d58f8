"""Check every promise against a live system: the inventory, Temporal, and the books of the world outside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from temporalio import activity
from temporalio.client import Client

from activities.pulse import pulse
from activities.runs import RunState, state_of
from domain import registry, wire
from domain.invariants import ActionFacts, accepted_is_finished
from domain.model import Finding, Query, Verification
from domain.ports import Inventory

Audit = Callable[[str], Awaitable[tuple[list[Finding], int]]]  # a path -> what is wrong at or below it, and of how many

LISTED = 200


class Verifying:
    """What `starter verify` asks for."""

    def __init__(self, client: Client, inventory: Inventory, audits: Sequence[Audit]) -> None:
        self._client = client
        self._inventory = inventory
        self._audits = audits

    @activity.defn(name=wire.VERIFY)
    async def verify(self, query: Query) -> Verification:
        """Look at everything at or below a path. What an open action is about is left out of the books."""
        async with pulse():
            open_runs = await self._open_runs()
            kept = await self._inventory.kept(query.path, open_runs)
            if unlisted := await self._unlisted(kept.actions, open_runs):
                open_runs |= unlisted
                kept = await self._inventory.kept(query.path, open_runs)
            findings = [*accepted_is_finished(kept.actions, open_runs), *kept.findings]
            books = 0
            for audit in self._audits:
                wrong, size = await audit(query.path)
                findings += wrong
                books += size
        busy = [each.path for each in kept.actions if not each.ended and each.run in open_runs]
        sure = [finding for finding in findings if not any(_touches(path, finding.path) for path in busy)]
        looked_at = Counter(actions=len(kept.actions), objects=kept.objects, lines=kept.lines, locks=kept.locks)
        looked_at["outside"] = books
        return Verification(findings=sure[:LISTED], more=max(0, len(sure) - LISTED), looked_at=dict(looked_at))

    async def _unlisted(self, actions: Sequence[ActionFacts], listed: set[str]) -> set[str]:
        """Runs that are open although Temporal does not list them yet: its lists lag behind."""
        doubtful = [each for each in actions if not each.ended and each.run not in listed]
        return {each.run for each in doubtful[:LISTED] if await self._is_open(each)}

    async def _is_open(self, action: ActionFacts) -> bool:
        owner = registry.owner_of(action.path, action.action)
        return await state_of(self._client, owner, action.run) is RunState.OPEN

    async def _open_runs(self) -> set[str]:
        running = self._client.list_workflows("ExecutionStatus = 'Running'")
        return {found.run_id async for found in running}


def _touches(path: str, other: str) -> bool:
    return path == other or other.startswith(f"{path}:") or path.startswith(f"{other}:")
