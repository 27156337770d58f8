"""What is kept for MCIs besides objects, as the activities use it: every method one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial

from domain.mci.messages import (
    Correction,
    Enrol,
    Enrolled,
    Held,
    Hold,
    Known,
    Leave,
    Survey,
    SurveyPlan,
    Unanswered,
    Wants,
)
from domain.mci.strays import Adoption
from domain.model import Chunk
from store.engine import Database
from store.mci import adopting, connections, enrolment, groups, surveys, unanswered


class SqlBook:
    """`domain.mci.messages.Book` on SQLite or PostgreSQL."""

    def __init__(self, database: Database) -> None:
        self._run = database.run

    async def unchecked(self, wanted: Sequence[Wants], at: datetime) -> list[Wants]:
        return await self._run(partial(connections.unchecked, wanted=wanted, at=at))

    async def remember(self, wanted: Wants, at: datetime) -> None:
        await self._run(partial(connections.remember, wanted=wanted, at=at))

    async def resources(self, place: str) -> dict[str, str]:
        return await self._run(partial(connections.resources, place=place))

    async def hold(self, wish: Hold) -> Held | None:
        return await self._run(partial(connections.hold, wish=wish))

    async def renew(self, held: Held, lasts: timedelta) -> bool:
        return await self._run(partial(connections.renew, held=held, lasts=lasts))

    async def keep(self, held: Held, lasts: timedelta, what: str, cloud_id: str | None) -> bool:
        return await self._run(partial(connections.keep, held=held, lasts=lasts, what=what, cloud_id=cloud_id))

    async def let_go(self, held: Held) -> None:
        await self._run(partial(connections.let_go, held=held))

    async def leave(self, wish: Hold, path: str) -> Leave:
        return await self._run(partial(connections.leave, wish=wish, path=path))

    async def left(self, held: Held, path: str) -> bool:
        return await self._run(partial(connections.left, held=held, path=path))

    async def size(self, path: str) -> int:
        return await self._run(partial(groups.size, path=path))

    async def place(self, path: str, group: str) -> str:
        return await self._run(partial(groups.place, path=path, group=group))

    async def enrol(self, order: Enrol) -> Enrolled:
        return await self._run(partial(enrolment.enrol, order=order))

    async def adopt(self, adoption: Adoption) -> str:
        return await self._run(partial(adopting.adopt, adoption=adoption))

    async def plan(self, survey: Survey) -> SurveyPlan:
        return await self._run(partial(surveys.plan, survey=survey))

    async def seen(self, chunk: Chunk, statuses: Sequence[str]) -> list[Known]:
        return await self._run(partial(surveys.seen, chunk=chunk, statuses=statuses))

    async def tagged(self, path: str, place: str) -> dict[str, str]:
        return await self._run(partial(surveys.tagged, path=path, place=place))

    async def correct(self, corrections: Sequence[Correction], at: datetime) -> list[Correction]:
        return await self._run(partial(surveys.correct, corrections=corrections, at=at))

    async def unanswered_places(self) -> list[str]:
        return await self._run(unanswered.places)

    async def unanswered(self, place: str, after: Unanswered | None, limit: int) -> list[Unanswered]:
        return await self._run(partial(unanswered.page, place=place, after=after, limit=limit))

    async def forget(self, some: Sequence[Unanswered]) -> None:
        await self._run(partial(unanswered.forget, some=some))
