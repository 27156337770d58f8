"""Surveys: compare the records of an MCI with the clouds, place by place, with one read for many VMs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from temporalio import activity

from activities.heartbeat import heartbeat
from activities.mci.vms import token_of
from activities.permits import Permits
from activities.retry import ProviderRetry
from domain.errors import ProviderError, one_line
from domain.mci import OBSERVED, VM, VmStatus
from domain.mci.messages import Correction, MciStore, SurveyedVm, SurveyPlace, SurveyReport
from domain.mci.tables import ASKED, RECONCILED
from domain.model import WHEN_WRITTEN, Chunk
from domain.paths import short
from domain.ports import Cloud, VmFacts, VmOrder, VmState
from domain.statetable import NONE, Actor, Ruling
from domain.wire import split_placement

SHOWN = 20  # entries of each sort per place, as a report must fit into a payload

DescribedVms = Sequence[VmFacts | None]


class SurveyActivities:
    """Activities of surveys. One instance per worker process, so that all share its permits."""

    def __init__(self, book: MciStore, clouds: Mapping[str, Cloud], permits: Permits, patience: ProviderRetry) -> None:
        self._book = book
        self._clouds = clouds
        self._permits = permits
        self._patience = patience

    @activity.defn
    async def survey_place(self, look: SurveyPlace) -> SurveyReport:
        """Asks the cloud of one place about its VMs, and corrects records at rest. A dry run writes nothing."""
        csp, region = split_placement(look.place)
        report = SurveyReport()
        async with heartbeat(), self._permits.region(csp, region):
            for chunk in look.chunks:
                report = report.plus(await self._chunk(look, chunk))
            if look.survey.reconcile:
                report = report.plus(await self._orphans(look))
        return report

    async def _chunk(self, look: SurveyPlace, chunk: Chunk) -> SurveyReport:
        known = await self._book.vms_in_status(chunk, RECONCILED if look.survey.reconcile else ASKED)
        if not known:
            return SurveyReport()
        try:
            answers: DescribedVms = await self._describe(look.place, known)
        except (ProviderError, TimeoutError) as error:
            why = _reason(error)
            stale = [Correction(one, one.status, _stale(one, why)) for one in known if one.target_action == NONE]
            if not look.survey.dry_run:
                await self._book.apply_corrections(stale, WHEN_WRITTEN)
            errors = [f"{look.place}: {why}"]
            return SurveyReport(calls=1, asked=len(known), stale=len(known), errors=errors)
        found = [
            correction
            for one, facts in zip(known, answers, strict=True)
            if one.target_action == NONE and (correction := correction_for(one, facts))
        ]
        made = found if look.survey.dry_run else await self._book.apply_corrections(found, WHEN_WRITTEN)
        return _report(len(known), made)

    async def _describe(self, place: str, known: Sequence[SurveyedVm]) -> DescribedVms:
        csp, region = split_placement(place)
        async with self._permits.vms(csp, region), asyncio.timeout(self._patience.call):
            return await self._clouds[csp].describe(region, [_order(one) for one in known])

    async def _orphans(self, look: SurveyPlace) -> SurveyReport:
        """Finds VMs that carry the MCI's path and that no record knows."""
        csp, region = split_placement(look.place)
        try:
            async with self._permits.vms(csp, region), asyncio.timeout(self._patience.call):
                there = await self._clouds[csp].list_tagged(region, look.survey.path)
        except (ProviderError, TimeoutError) as error:
            return SurveyReport(calls=1, errors=[f"{look.place}: {_reason(error)}"])
        ours = await self._book.known_cloud_ids(look.survey.path, look.place)
        lost = [
            f"{short(vm.path)}: {vm.cloud_id} is {vm.state} in {look.place}"
            for vm in there
            if vm.state is not VmState.TERMINATED and ours.get(vm.path) != vm.cloud_id
        ]
        return SurveyReport(calls=1, orphans=lost[:SHOWN], orphans_found=len(lost))


def _reason(error: ProviderError | TimeoutError) -> str:
    return one_line(str(error) or "no answer in time", 200)


def correction_for(known: SurveyedVm, facts: VmFacts | None) -> Correction | None:
    """Returns the correction of a VM's status or info by the cloud's facts, or None if nothing differs."""
    if facts is None:
        return _gone(known)
    info = {key: value for key, value in known.info.items() if key != "stale"}
    info |= {"cloud_id": facts.cloud_id, "address": facts.address}
    status = OBSERVED.get(facts.state)
    if status is None:  # transitional or unknown state: no clear answer
        return None
    if status != known.status and VM.judge_step(known.status, status, Actor.CLOUD).ruling is not Ruling.GO:
        return None
    if known.status == VmStatus.FAILED:
        info.pop("failure", None)
    if status == known.status and info == known.info:
        return None
    return Correction(known, status, info, f"the cloud says that it is {facts.state}")


def _gone(known: SurveyedVm) -> Correction | None:
    """Corrects a VM that the cloud does not know to Undefined; one that was never created stays Failed."""
    never_made = known.status == VmStatus.FAILED and "cloud_id" not in known.info
    if never_made or known.status == VmStatus.UNDEFINED:
        return None
    info = {key: value for key, value in known.info.items() if key != "stale"}
    return Correction(known, VmStatus.UNDEFINED, info, "the cloud knows no such VM")


def _stale(known: SurveyedVm, why: str) -> dict[str, object]:
    return {**known.info, "stale": {"since": datetime.now(UTC).isoformat(), "error": why}}


def _order(known: SurveyedVm) -> VmOrder:
    token = token_of(known.path, known.info["generation"], "create", 0)
    return VmOrder(known.path, token, known.info.get("cloud_id", ""))


def _report(asked: int, made: Sequence[Correction]) -> SurveyReport:
    changed = [each for each in made if each.status != each.known.status]
    words = [f"{each.known.status} to {each.status}" for each in changed]
    lines = [f"{short(each.known.path)}: {word}" for each, word in zip(changed, words, strict=True)]
    return SurveyReport(calls=1, asked=asked, changes=dict(Counter(words)), corrected=lines[:SHOWN])
