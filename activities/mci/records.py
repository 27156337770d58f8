"""Local activities on MCI records, besides begin and finish. They may run twice."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from temporalio import activity

from activities.access import Authorizer
from activities.pollers import PollerCheck
from activities.reads import refusals_as_errors
from domain import registry, wire
from domain.connections import Connections, check_places_served
from domain.errors import Category, Refused, join_first_texts, suggest_word
from domain.mci.messages import (
    AddedVms,
    AddVms,
    MciCheckResult,
    MciStore,
    SurveyPlan,
    SurveyRequest,
    requirements_by_place,
)
from domain.mci.orphans import AdoptOrphanOrder
from domain.mci.specs import MciSpec, ScaleSpec
from domain.model import AT_WRITE_TIME, BeginRequest, Refusal, Request

NAMES_SHOWN = 12  # connections that a refusal names


@dataclass(eq=False)
class MciRecordActivities:
    """Reads and writes of MCI records. `most` is the limit of VMs per MCI; `pollers` tells which queues are served."""

    store: MciStore
    directory: Connections
    most: int
    pollers: PollerCheck
    authorizer: Authorizer

    @activity.defn(name="examine_mci")
    async def examine_mci_request(self, claim: BeginRequest) -> MciCheckResult:
        """Checks a request without asking a cloud. Returns the refusal, or the specs and images still to verify."""
        return await self.check_mci_request(claim.request)

    async def check_mci_request(self, request: Request) -> MciCheckResult:
        """Checks a request as `check_request` does, without judging its sender again."""
        try:
            spec = registry.parse_spec(request)
            if isinstance(spec, ScaleSpec):
                self._check_vm_count(spec.count + await self.store.count_vms(request.path))
                await self._check_clouds_served([await self.store.place_of_group(request.path, spec.subGroup)])
                return MciCheckResult()
            assert isinstance(spec, MciSpec)
            self._check_vm_count(spec.vm_count)
            found = self._look_up_connections(group.connectionName for group in spec.subGroups if group.connectionName)
            spec = spec.with_places(found, self.directory.provider_of_region)
            places = [group.place for group in spec.subGroups]
            self.authorizer.authorize_places(request.path, places)  # those of connections are known only now
            await self._check_clouds_served(places)
            unknown = await self.store.list_unverified_requirements(requirements_by_place(spec), AT_WRITE_TIME)
        except Refused as refused:
            return MciCheckResult(refusal=Refusal.from_error(refused))
        real = {f"{group.csp}/{group.region}": group.provider for group in spec.subGroups if group.provider}
        return MciCheckResult(connections=found, providers=real, unknown=unknown)

    @activity.defn(name="enrol_vms")
    @refusals_as_errors
    async def add_vms_to_action(self, order: AddVms) -> AddedVms:
        """Adds VMs to a running action."""
        return await self.store.add_vms_to_action(order)

    @activity.defn(name="adopt_vm")
    @refusals_as_errors
    async def adopt_orphan(self, adoption: AdoptOrphanOrder) -> str:
        """Gives an orphan to its record. Returns the record's status."""
        return await self.store.adopt_orphan(adoption)

    @activity.defn
    @refusals_as_errors
    async def plan_survey(self, survey: SurveyRequest) -> SurveyPlan:
        """Plans a survey: the VMs and places to ask clouds about."""
        plan = await self.store.plan_survey(survey)
        check_places_served(plan.places, self.directory.real_places())
        return plan

    def _check_vm_count(self, size: int) -> None:
        if size > self.most:
            hint = "ask for fewer, or raise RATCHET_MAX_VMS where the worker runs"
            raise Refused(Category.QUOTA, f"{size} VMs are too many: the limit here is {self.most} in one MCI", hint)

    async def _check_clouds_served(self, places: Iterable[str]) -> None:
        """Refuses if no worker serves one of the clouds."""
        clouds = {wire.split_placement(place)[0] for place in places if place}
        queues = {wire.cloud_queue(csp): csp for csp in clouds}
        if missing := await self.pollers.queues_without_workers(list(queues)):
            csp, known = queues[missing[0]], self.directory.served_clouds()
            message = f"no worker serves the cloud {csp!r}: nothing was changed"
            if csp in known:
                raise Refused(Category.NOT_ALLOWED, message, f"start one: starter worker --queues {missing[0]}")
            hint = f"clouds here are: {', '.join(known)}; another one needs a connection: RATCHET_CONNECTIONS"
            raise Refused(Category.INVALID, message, suggest_word(csp, known) + hint)

    def _look_up_connections(self, names: Iterable[str]) -> dict[str, tuple[str, str]]:
        found: dict[str, tuple[str, str]] = {}
        for name in names:
            place = self.directory.find_place_of_connection(name)
            if place is None:
                hint = f"connections are: {join_first_texts(self.directory.connection_names(), NAMES_SHOWN, ', ')}"
                raise Refused(Category.INVALID, f"there is no connection {name!r}", hint)
            found[name] = place
        return found
