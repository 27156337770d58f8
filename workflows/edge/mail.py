"""What every action of the edge hears: a CRM's answers and news of its connection, sorted by the object.

Signals only put messages into the mail; they are judged one after the other by who reads it. What nobody is going to
read is kept in the history as ignored.
"""

from __future__ import annotations

from collections import deque
from datetime import datetime, timedelta
from typing import Any

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from domain.edge import messages as wire
    from domain.edge.messages import Address, CrmResponse, Ignored, Lost, Reconnected, understood
    from workflows.action import Action
    from workflows.edge import calls

News = CrmResponse | Reconnected | Lost

MOST_IGNORED = 50  # messages of one action that are kept as ignored; a flood is counted, not written down
OVER = "the action has ended"


class Mail(Action):
    """An action that a CRM can write to."""

    def __init__(self) -> None:
        super().__init__()
        self._mail: dict[str, deque[News]] = {}
        self._latest: Address | None = None
        self._ignored = 0
        self._over = False

    @workflow.signal(name=wire.CRM_RESPONSE, description="A CRM's answer: state, errors, notify_id, progress.")
    async def crm_response(self, raw: Any = None) -> None:
        said = understood(CrmResponse, raw)
        own = workflow.info().workflow_id
        if isinstance(said, str):
            await self.ignore(own, "?", said)
            return
        assert isinstance(said, CrmResponse)
        path = said.path or own
        if path != own and not path.startswith(f"{own}:"):
            await self.ignore(own, said.state, f"it is about {path}, which this action does not change")
        elif self._over or self._ended:
            await self.late(path, said)
        else:
            self.box(path).append(said)

    @workflow.signal(name=wire.RECONNECTED, description="The CRM has connected again, with a new notify-id.")
    def reconnected(self, news: Reconnected) -> None:
        self._latest = news.address
        for path in {workflow.info().workflow_id: None, **self._mail}:
            self.box(path).append(news)

    @workflow.signal(name=wire.CONNECTION_LOST, description="A CRM's connection is gone.")
    def connection_lost(self, news: Lost) -> None:
        self.box(workflow.info().workflow_id).append(news)

    def newest(self, granted: Address) -> Address:
        """The CRM that is connected now, if that has changed since the action was granted."""
        return self._latest or granted

    def box(self, path: str) -> deque[News]:
        """The mail about one object."""
        return self._mail.setdefault(path, deque())

    async def read(self, path: str, until: datetime, what: str = "the CRM's answer") -> News | None:
        """The next message about an object, or None when the time is up."""
        box = self.box(path)
        if not box and (left := until - workflow.now()) > timedelta(0):
            try:
                await workflow.wait_condition(lambda: bool(box), timeout=left, timeout_summary=what)
            except TimeoutError:
                return None
        return box.popleft() if box else None

    async def ignore(self, path: str, state: str, why: str, actor: str = "CRM") -> None:
        """Keep a message that changes nothing, unless too many were kept already."""
        self._ignored += 1
        if self._ignored <= MOST_IGNORED:
            last = "; further ones are not kept" if self._ignored == MOST_IGNORED else ""
            await calls.ignore(Ignored(path=path, state=state, reason=f"{why}{last}", actor=actor))

    async def late(self, path: str, said: CrmResponse) -> None:
        """An answer that came when nobody reads any more."""
        await self.ignore(path, said.state, OVER)

    async def close_mail(self) -> None:
        """Nobody reads any more: what is there, and what still comes, came too late."""
        self._over = True
        for path, box in self._mail.items():
            while box:
                late = box.popleft()
                if isinstance(late, CrmResponse):
                    await self.ignore(path, late.state, OVER)
