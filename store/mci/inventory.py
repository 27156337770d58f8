"""What is kept for MCIs besides objects, as the activities use it: every method one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial

from domain.mci.messages import (
    ConnectionHold,
    Correction,
    Enrol,
    Enrolled,
    HeldConnection,
    LeaveResult,
    PlaceNeeds,
    Survey,
    SurveyedVm,
    SurveyPlan,
    UnansweredOrder,
)
from domain.mci.strays import Adoption
from domain.model import Chunk
from store.engine import Database
from store.mci import adopting, connections, enrolment, groups, surveys, unanswered


class SqlMciStore:
    """`domain.mci.messages.MciStore` on SQLite or PostgreSQL."""

    def __init__(self, database: Database) -> None:
        self._run = database.run

    async def unverified(self, wanted: Sequence[PlaceNeeds], at: datetime) -> list[PlaceNeeds]:
        return await self._run(partial(connections.unverified, wanted=wanted, at=at))

    async def mark_verified(self, wanted: PlaceNeeds, at: datetime) -> None:
        await self._run(partial(connections.mark_verified, wanted=wanted, at=at))

    async def shared_resources(self, place: str) -> dict[str, str]:
        return await self._run(partial(connections.resources, place=place))

    async def hold_connection(self, wish: ConnectionHold) -> HeldConnection | None:
        return await self._run(partial(connections.acquire_hold, wish=wish))

    async def renew_hold(self, held: HeldConnection, lasts: timedelta) -> bool:
        return await self._run(partial(connections.renew_hold, held=held, lasts=lasts))

    async def record_resource(self, held: HeldConnection, lasts: timedelta, what: str, cloud_id: str | None) -> bool:
        return await self._run(
            partial(connections.record_resource, held=held, lasts=lasts, what=what, cloud_id=cloud_id)
        )

    async def release_hold(self, held: HeldConnection) -> None:
        await self._run(partial(connections.release_hold, held=held))

    async def leave_place(self, wish: ConnectionHold, path: str) -> LeaveResult:
        return await self._run(partial(connections.leave_place, wish=wish, path=path))

    async def finish_leaving(self, held: HeldConnection, path: str) -> bool:
        return await self._run(partial(connections.finish_leaving, held=held, path=path))

    async def count_vms(self, path: str) -> int:
        return await self._run(partial(groups.count_vms, path=path))

    async def place_of_group(self, path: str, group: str) -> str:
        return await self._run(partial(groups.place, path=path, group=group))

    async def enrol(self, order: Enrol) -> Enrolled:
        return await self._run(partial(enrolment.enrol, order=order))

    async def adopt(self, adoption: Adoption) -> str:
        return await self._run(partial(adopting.adopt, adoption=adoption))

    async def plan_survey(self, survey: Survey) -> SurveyPlan:
        return await self._run(partial(surveys.plan_survey, survey=survey))

    async def vms_in_status(self, chunk: Chunk, statuses: Sequence[str]) -> list[SurveyedVm]:
        return await self._run(partial(surveys.vms_in_status, chunk=chunk, statuses=statuses))

    async def known_cloud_ids(self, path: str, place: str) -> dict[str, str]:
        return await self._run(partial(surveys.cloud_ids, path=path, place=place))

    async def apply_corrections(self, corrections: Sequence[Correction], at: datetime) -> list[Correction]:
        return await self._run(partial(surveys.apply_corrections, corrections=corrections, at=at))

    async def unanswered_places(self) -> list[str]:
        return await self._run(unanswered.places)

    async def unanswered_page(self, place: str, after: UnansweredOrder | None, limit: int) -> list[UnansweredOrder]:
        return await self._run(partial(unanswered.page, place=place, after=after, limit=limit))

    async def forget_unanswered(self, some: Sequence[UnansweredOrder]) -> None:
        await self._run(partial(unanswered.forget, some=some))
