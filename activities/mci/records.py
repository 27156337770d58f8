"""Local activities on MCI records, besides begin and finish. They may run twice."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from temporalio import activity

from activities.pollers import Pollers
from activities.reads import refusal_as_answer
from domain import registry, wire
from domain.connections import check_served
from domain.errors import Category, Refused, join_first
from domain.mci import MciSpec, Scale
from domain.mci.messages import (
    AddedVms,
    AddVms,
    ConnectionDirectory,
    Examination,
    MciStore,
    Survey,
    SurveyPlan,
    needs_by_place,
)
from domain.mci.strays import Adoption
from domain.model import Refusal, Request

SHOWN = 12  # connections that a refusal names


class RecordActivities:
    """Reads and writes of MCI records. `most` is the limit of VMs per MCI; `pollers` tells which queues are served."""

    def __init__(self, book: MciStore, directory: ConnectionDirectory, most: int, pollers: Pollers) -> None:
        self._book = book
        self._directory = directory
        self._most = most
        self._pollers = pollers

    @activity.defn
    async def examine_mci(self, request: Request) -> Examination:
        """Checks a request without asking a cloud. Returns the refusal, or the specs and images still to verify."""
        try:
            spec = registry.parse_spec(request)
            if isinstance(spec, Scale):
                self._check_vm_count(spec.count + await self._book.count_vms(request.path))
                await self._check_polled([await self._book.place_of_group(request.path, spec.subGroup)])
                return Examination()
            assert isinstance(spec, MciSpec)
            self._check_vm_count(spec.size)
            found = self._look_up(group.connectionName for group in spec.subGroups if group.connectionName)
            spec = spec.located(found).provided(self._directory.provider)
            await self._check_polled([group.place for group in spec.subGroups])
            unknown = await self._book.unverified(needs_by_place(spec), datetime.now(UTC))
        except Refused as refused:
            return Examination(refusal=Refusal.of(refused))
        real = {f"{group.csp}/{group.region}": group.provider for group in spec.subGroups if group.provider}
        return Examination(connections=found, providers=real, unknown=unknown)

    @activity.defn
    async def enrol_vms(self, order: AddVms) -> AddedVms:
        """Adds VMs to a running action."""
        return await refusal_as_answer(self._book.enrol(order))

    @activity.defn
    async def adopt_vm(self, adoption: Adoption) -> str:
        """Gives an orphan to its record. Returns the record's status."""
        return await refusal_as_answer(self._book.adopt(adoption))

    @activity.defn
    async def plan_survey(self, survey: Survey) -> SurveyPlan:
        """Plans a survey: the VMs and places to ask clouds about."""
        return await refusal_as_answer(self._planned(survey))

    async def _planned(self, survey: Survey) -> SurveyPlan:
        plan = await self._book.plan_survey(survey)
        check_served(plan.places, self._directory.places())
        return plan

    def _check_vm_count(self, size: int) -> None:
        if size > self._most:
            hint = "ask for fewer, or raise RATCHET_MAX_VMS where the worker runs"
            raise Refused(Category.QUOTA, f"{size} VMs are too many: the limit here is {self._most} in one MCI", hint)

    async def _check_polled(self, places: Iterable[str]) -> None:
        """Refuses if no worker serves one of the clouds."""
        clouds = {wire.split_placement(place)[0] for place in places if place}
        queues = {wire.cloud_queue(csp): csp for csp in clouds}
        if missing := await self._pollers.missing(list(queues)):
            csp, known = queues[missing[0]], self._directory.clouds()
            hint = f"start one: starter worker --queues {missing[0]}"
            if csp not in known:
                hint = f"clouds here are: {', '.join(known)}; another one needs a connection: RATCHET_CONNECTIONS"
            raise Refused(Category.NOT_ALLOWED, f"no worker serves the cloud {csp!r}: nothing was changed", hint)

    def _look_up(self, names: Iterable[str]) -> dict[str, tuple[str, str]]:
        found: dict[str, tuple[str, str]] = {}
        for name in names:
            place = self._directory.find(name)
            if place is None:
                hint = f"connections are: {join_first(self._directory.names(), SHOWN, ', ')}"
                raise Refused(Category.INVALID, f"there is no connection {name!r}", hint)
            found[name] = place
        return found
