"""Dry run of the checks that `CreateMci` and `ScaleGroup` make before admission."""

from __future__ import annotations

import asyncio
import uuid
from datetime import timedelta

from temporalio.client import ActivityFailureError, Client

from activities.mci.records import RecordActivities
from domain.mci.messages import VALIDATE_PLACE, Findings, PlaceNeeds, not_offered
from domain.model import Request
from domain.wire import cloud_queue, split_placement

PATIENCE = timedelta(seconds=5)  # for a cloud's answer, as a user waits


class Rehearsal:
    """Checks a request in a dry run. Validates through the clouds' own workers, as only they have the credentials."""

    def __init__(self, client: Client, records: RecordActivities) -> None:
        self._client = client
        self._records = records

    async def examine(self, request: Request) -> Request:
        """Returns the request as it would be carried out, or raises Refused."""
        found = await self._records.examine_mci(request)
        if found.refusal:
            raise found.refusal.error()
        if refusal := not_offered(await asyncio.gather(*map(self._validated, found.unknown))):
            raise refusal.error()
        if request.action != "create":
            return request
        return request.model_copy(update={"spec": found.located(request.spec or {})})

    async def _validated(self, wants: PlaceNeeds) -> Findings:
        try:
            found: Findings = await self._client.execute_activity(
                VALIDATE_PLACE,
                wants,
                id=f"{VALIDATE_PLACE}-{uuid.uuid4().hex[:12]}",
                task_queue=cloud_queue(split_placement(wants.place)[0]),
                result_type=Findings,
                schedule_to_close_timeout=PATIENCE,
            )
            return found
        except ActivityFailureError as failure:  # no answer in time is no refusal
            return Findings(problems=[str(failure.cause)], clear=False)
