"""Dry run of the checks that `CreateMci` and `ScaleGroup` make before admission."""

from __future__ import annotations

import asyncio
import uuid
from datetime import timedelta

from temporalio.client import ActivityFailureError, Client

from activities.mci.records import MciRecordActivities
from domain.mci.messages import VALIDATE_PLACE, PlaceRequirements, PlaceResult, refusal_of_missing_offers
from domain.model import Request
from domain.wire import cloud_queue, split_placement

CLOUD_TIMEOUT = timedelta(seconds=5)  # for a cloud's answer, as a user waits


class DryRunExaminer:
    """Checks a request in a dry run. Validates through the clouds' own workers, as only they have the credentials."""

    def __init__(self, client: Client, records: MciRecordActivities) -> None:
        self._client = client
        self._records = records

    async def examine_request(self, request: Request) -> Request:
        """Returns the request as it would be carried out, or raises Refused."""
        examination = await self._records.check_mci_request(request)
        if examination.refusal:
            raise examination.refusal.to_error()
        asked = [needs.model_copy(update={"request": request}) for needs in examination.unknown]
        if refusal := refusal_of_missing_offers(await asyncio.gather(*map(self._validate_place, asked))):
            raise refusal.to_error()
        if request.action != "create":
            return request
        return request.model_copy(update={"spec": examination.spec_with_places(request.spec or {})})

    async def _validate_place(self, wants: PlaceRequirements) -> PlaceResult:
        try:
            findings: PlaceResult = await self._client.execute_activity(
                VALIDATE_PLACE,
                wants,
                id=f"{VALIDATE_PLACE}-{uuid.uuid4().hex[:12]}",
                task_queue=cloud_queue(split_placement(wants.place)[0]),
                result_type=PlaceResult,
                schedule_to_close_timeout=CLOUD_TIMEOUT,
            )
            return findings
        except ActivityFailureError as failure:  # no answer in time is no refusal
            return PlaceResult(problems=[str(failure.cause)], clear=False)
