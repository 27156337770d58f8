"""The life of a volume, run in a copy of the tree that has the example family: `python -m tests.family_life HOME`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from activities.orphans import OrphanActivities
from client.actions import ActionClient
from domain.faults import Fault, FaultKind
from domain.model import Outcome, Refusal, Request
from providers.simulated.faults import FaultScriptStore
from tests.patience import PATIENCE
from tests.stack import ActionStack, opened

DATA = "project:acme:volume:data"


def _told(outcome: Outcome) -> str:
    return f"{outcome.result} {outcome.status}"


class Life:
    """Asks for actions on one volume, and says what became of them."""

    def __init__(self, running: ActionStack) -> None:
        self._asking = ActionClient(running.client)
        self._script = FaultScriptStore(running.stack.cloud_database)
        self.family: Any = next(family for family in running.stack.families if family.name == "volumes")

    async def ask(self, action: str, **spec: Any) -> Outcome | Refusal:
        ticket = await self._asking.request_action(
            Request(path=DATA, action=action, spec=spec or None, requested_by="tester")
        )
        return ticket.admission.refusal or await self._asking.wait_for_outcome(DATA, ticket.run)

    async def to(self, action: str, **spec: Any) -> str:
        """The result and the status after an action that is admitted."""
        outcome = await self.ask(action, **spec)
        assert isinstance(outcome, Outcome), outcome
        return _told(outcome)

    async def refused(self, action: str, **spec: Any) -> str:
        """Why an action is refused."""
        refusal = await self.ask(action, **spec)
        assert isinstance(refusal, Refusal), refusal
        return refusal.message

    async def fails(self, kind: FaultKind, verb: str, times: int | None = 1) -> None:
        await self._script.replace_rules([Fault(kind=kind, csp="volumes", verb=verb, times=times, seconds=PATIENCE)])

    async def cut_off(self, kind: FaultKind, action: str, by: str = "cancel", **spec: Any) -> str:
        """What becomes of an action whose order was never answered when it is cancelled, or another one takes over."""
        done = len(await self.family.provider.list_carried_out_verbs(DATA))
        await self.fails(kind, action, times=1 if kind is FaultKind.HANG else None)
        ticket = await self._asking.request_action(
            Request(path=DATA, action=action, spec=spec or None, requested_by="tester")
        )
        assert not ticket.admission.refusal, ticket.admission.refusal
        async with asyncio.timeout(PATIENCE):
            while await self._script.list_rules() if kind is FaultKind.HANG else not await self._is_done(done):
                await asyncio.sleep(0.02)
        if by == "cancel":
            await self._asking.cancel_action(DATA)
            return _told(await self._asking.wait_for_outcome(DATA, ticket.run))
        forced = Request(path=DATA, action=by, force=True, requested_by="tester")
        other = await self._asking.request_action(forced)
        assert not other.admission.refusal, other.admission.refusal
        first, second = [await self._asking.wait_for_outcome(DATA, ticket.run) for ticket in (ticket, other)]
        return f"{first.result}, then {_told(second)}"

    async def _is_done(self, before: int) -> bool:
        return len(await self.family.provider.list_carried_out_verbs(DATA)) > before

    @contextmanager
    def gives_up_soon(self) -> Iterator[None]:
        """For an order that is never answered: elsewhere one is repeated for as long as a test takes."""
        retry = vars(self.family.retry)
        before = retry["total_seconds"]
        retry["total_seconds"] = 5
        try:
            yield
        finally:
            retry["total_seconds"] = before

    async def heal(self) -> None:
        await self._script.replace_rules([])

    async def info(self) -> dict[str, Any]:
        """What the record keeps of the provider's facts."""
        info = (await self._asking.read_object(DATA)).info
        return {name: info[name] for name in ("size", "server") if name in info}

    async def wrong(self) -> list[Any]:
        """What a comparison of the records with the provider finds."""
        context = self.family.context
        compared = OrphanActivities(context.inventory, self.family.listings(), context.fence)
        return list((await compared.find_violations(DATA))[0])


async def live(life: Life) -> None:
    assert await life.to("create", size=20) == "succeeded Available"
    assert await life.to("attach", server="web-1") == "succeeded InUse"
    assert await life.info() == {"size": 20, "server": "web-1"}
    assert "InUse" in await life.refused("delete")
    assert await life.to("detach") == "succeeded Available"
    assert await life.info() == {"size": 20}
    assert "a volume only grows" in await life.refused("resize", size=5)
    assert await life.to("resize", size=40) == "succeeded Available"
    assert await life.info() == {"size": 40}
    assert await life.wrong() == []


async def suffer(life: Life) -> None:
    """Faults of the provider: an order has one effect, and the record says what the provider says."""
    await life.fails(FaultKind.LOSE_ANSWER, "attach")
    assert await life.to("attach", server="web-2") == "succeeded InUse"
    await life.fails(FaultKind.FAIL, "detach")
    assert await life.to("detach") == "failed InUse"
    assert await life.to("detach") == "succeeded Available"
    await life.fails(FaultKind.LOSE_ANSWER, "delete", times=None)  # done, but never answered: the description tells
    with life.gives_up_soon():
        assert await life.to("delete") == "failed None"
    await life.fails(FaultKind.FAIL, "create")
    assert await life.to("create") == "failed None"
    assert await life.wrong() == []
    done = ["create", "attach", "detach", "resize", "attach", "detach", "delete"]
    assert await life.family.provider.list_carried_out_verbs(DATA) == done


async def interrupt(life: Life) -> None:
    """Cancelled, or taken over by force: the record says what the provider says, and nothing is done twice."""
    hang, lose = FaultKind.HANG, FaultKind.LOSE_ANSWER
    assert await life.cut_off(hang, "create", size=20) == "cancelled None"
    assert await life.to("create", size=20) == "succeeded Available"
    assert await life.cut_off(hang, "attach", server="web-1") == "cancelled Available"
    assert await life.cut_off(lose, "attach", server="web-1") == "cancelled InUse"
    assert await life.info() == {"size": 20, "server": "web-1"}
    assert await life.cut_off(hang, "detach", by="detach") == "cancelled, then succeeded Available"
    assert await life.cut_off(hang, "delete") == "cancelled Available"
    # The order was carried out, so that the one that takes over meets a volume in use, which cannot be deleted.
    assert await life.cut_off(lose, "attach", by="delete", server="web-2") == "cancelled, then failed InUse"
    assert await life.wrong() == []
    await life.heal()
    assert await life.to("detach") == "succeeded Available"
    assert await life.cut_off(lose, "resize", by="delete", size=40) == "cancelled, then succeeded None"
    assert await life.wrong() == []
    done = ["create", "attach", "detach", "attach", "detach", "resize", "delete"]
    assert (await life.family.provider.list_carried_out_verbs(DATA))[-len(done) :] == done


async def main(home: Path) -> None:
    async with opened(home, call_timeout=str(PATIENCE), patience=str(PATIENCE)) as running:
        life = Life(running)
        await live(life)
        await suffer(life)
        await life.heal()
        await interrupt(life)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
