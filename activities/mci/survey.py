"""Surveys: compare the records of an MCI with the clouds, place by place, with one read for many VMs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from temporalio import activity

from activities.heartbeat import send_heartbeats
from activities.mci.vms import order_token
from activities.orphans import (
    PROVIDER_FAILURES,
    ProviderListing,
    compare_with_records,
    failure_text,
    iterate_provider_pages,
)
from activities.permits import PermitPool
from activities.retry import ProviderRetry
from domain.errors import ProviderError
from domain.mci.messages import MciStore, SurveyedVm, SurveyPlace, SurveyReport, VmCorrection
from domain.mci.tables import RECONCILED_STATUSES, STATUS_OF_CLOUD_STATE, SURVEYED_STATUSES, VM, VmStatus
from domain.model import AT_WRITE_TIME, Chunk
from domain.paths import short_path
from domain.ports import Cloud, Inventory, VmFacts, VmOrder
from domain.statetable import NONE, Actor, Ruling
from domain.wire import split_placement

NAMES_SHOWN = 20  # entries of each sort per place, as a report must fit into a payload

DescribedVms = Sequence[VmFacts | None]


@dataclass(eq=False)
class SurveyActivities:
    """Activities of surveys. One instance per worker process, so that all share its permits."""

    store: MciStore
    clouds: Mapping[str, Cloud]
    permits: PermitPool
    patience: ProviderRetry
    inventory: Inventory
    listing: ProviderListing

    @activity.defn
    async def survey_place(self, look: SurveyPlace) -> SurveyReport:
        """Asks the cloud of one place about its VMs, and corrects records at rest. A dry run writes nothing."""
        csp, region = split_placement(look.place)
        report = SurveyReport()
        async with send_heartbeats():
            async with self.permits.take_region_permit(csp, region):
                for chunk in look.chunks:
                    report = report.sum_with(await self._survey_chunk(look, chunk))
            if look.survey.reconcile:
                report = report.sum_with(await self._survey_orphans(look))
        return report

    async def _survey_chunk(self, look: SurveyPlace, chunk: Chunk) -> SurveyReport:
        known = await self.store.list_vms_in_status(
            chunk, RECONCILED_STATUSES if look.survey.reconcile else SURVEYED_STATUSES
        )
        if not known:
            return SurveyReport()
        try:
            answers: DescribedVms = await self._describe_vms(look.place, known)
        except (ProviderError, TimeoutError) as error:
            why = failure_text(error)
            mark = {"stale": {"since": datetime.now(UTC).isoformat(), "error": why}}
            stale = [VmCorrection(one, one.status, one.info | mark) for one in known if one.target_action == NONE]
            if not look.survey.dry_run:
                await self.store.apply_corrections(stale, AT_WRITE_TIME)
            errors = [f"{look.place}: {why}"]
            return SurveyReport(calls=1, asked=len(known), stale=len(known), errors=errors)
        found = [
            correction
            for one, facts in zip(known, answers, strict=True)
            if one.target_action == NONE and (correction := find_correction(one, facts))
        ]
        made = found if look.survey.dry_run else await self.store.apply_corrections(found, AT_WRITE_TIME)
        return _chunk_report(len(known), made)

    async def _describe_vms(self, place: str, known: Sequence[SurveyedVm]) -> DescribedVms:
        csp, region = split_placement(place)
        async with self.permits.take_vm_slots(csp, region), asyncio.timeout(self.patience.call_seconds):
            return await self.clouds[csp].describe_vms(region, [_make_describe_order(one) for one in known])

    async def _survey_orphans(self, look: SurveyPlace) -> SurveyReport:
        """Finds VMs that carry the MCI's path and that no record knows, as `starter orphans list` does."""
        report = SurveyReport(calls=1)  # the last page, which is empty
        try:
            async for page in iterate_provider_pages(self.listing, look.place, look.survey.path):
                compared = await compare_with_records(self.inventory, self.listing, page)
                lost = [
                    f"{short_path(thing.path)}: {thing.id} is {thing.state} in {look.place}"
                    for thing, _, word in compared
                    if word
                ]
                shown = lost[: NAMES_SHOWN - len(report.orphans)]
                report = report.sum_with(SurveyReport(calls=1, orphans=shown, orphans_found=len(lost)))
        except PROVIDER_FAILURES as error:
            return report.sum_with(SurveyReport(errors=[f"{look.place}: {failure_text(error)}"]))
        return report


def find_correction(known: SurveyedVm, facts: VmFacts | None) -> VmCorrection | None:
    """Returns the correction of a VM's status or info by the cloud's facts, or None if nothing differs."""
    if facts is None:
        return _correction_for_missing(known)
    info = {key: value for key, value in known.info.items() if key != "stale"}
    info |= {"cloud_id": facts.cloud_id, "address": facts.address}
    status = STATUS_OF_CLOUD_STATE.get(facts.state)
    if status is None:  # transitional or unknown state: no clear answer
        return None
    if status != known.status and VM.judge_step(known.status, status, Actor.CLOUD).ruling is not Ruling.GO:
        return None
    if known.status == VmStatus.FAILED:
        info.pop("failure", None)
    if status == known.status and info == known.info:
        return None
    return VmCorrection(known, status, info, f"the cloud says that it is {facts.state}")


def _correction_for_missing(known: SurveyedVm) -> VmCorrection | None:
    """Corrects a VM that the cloud does not know to Undefined; one that was never created stays Failed."""
    never_made = known.status == VmStatus.FAILED and "cloud_id" not in known.info
    if never_made or known.status == VmStatus.UNDEFINED:
        return None
    info = {key: value for key, value in known.info.items() if key != "stale"}
    return VmCorrection(known, VmStatus.UNDEFINED, info, "the cloud knows no such VM")


def _make_describe_order(known: SurveyedVm) -> VmOrder:
    token = order_token(known.path, known.info["generation"], "create", 0)
    return VmOrder(known.path, token, known.info.get("cloud_id", ""))


def _chunk_report(asked: int, made: Sequence[VmCorrection]) -> SurveyReport:
    changed = [correction for correction in made if correction.status != correction.known.status]
    words = [f"{correction.known.status} to {correction.status}" for correction in changed]
    lines = [f"{short_path(correction.known.path)}: {word}" for correction, word in zip(changed, words, strict=True)]
    return SurveyReport(calls=1, asked=asked, changes=dict(Counter(words)), corrected=lines[:NAMES_SHOWN])
