"""The MCI family in a worker: activities that call clouds are on one queue per cloud."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from activities.leftovers import FindLeftovers
from activities.mci.listing import VmListing
from activities.mci.orphans import IdentifyActivities
from activities.mci.places import PlaceActivities
from activities.mci.records import RecordActivities
from activities.mci.rehearsal import Rehearsal
from activities.mci.survey import SurveyActivities
from activities.mci.unanswered import LateVmSearch
from activities.mci.vms import VmActivities
from activities.orphans import ProviderListing
from activities.pollers import Pollers
from activities.reads import Examiner
from activities.retry import ProviderRetry
from domain.faults import APART
from domain.mci import KINDS
from domain.wire import ACTIONS_QUEUE, cloud_queue, placement
from providers.simulated.vms import VERBS
from store.hooks import HooksByKind
from store.mci.hooks import HOOKS
from store.mci.inventory import SqlMciStore
from workers.context import WorkerContext
from workers.family import ActivitiesByQueue, Family
from workflows.mci.creation import CreateMci
from workflows.mci.orphans import AdoptOrphan
from workflows.mci.survey import SurveyVms
from workflows.mci.vms import ControlVms, RemoveVms, ScaleGroup


class MciFamily(Family):
    """MCIs, their VMs, and VMs that no record knows."""

    name = "mci"
    kinds = KINDS
    workflows = (CreateMci, ControlVms, RemoveVms, ScaleGroup, SurveyVms, AdoptOrphan)

    @classmethod
    def hooks(cls) -> HooksByKind:
        return HOOKS

    def __init__(self, context: WorkerContext) -> None:
        super().__init__(context)
        self._store = SqlMciStore(context.database)
        self._patience = ProviderRetry(call=context.settings.call_timeout, total=context.settings.patience)
        pollers = Pollers(context.client, context.serving)
        self._records = RecordActivities(self._store, context.connections, context.settings.max_vms, pollers)

    def activities(self) -> ActivitiesByQueue:
        context = self.context
        reach = (context.clouds, context.permits, context.fence, self._patience)
        vms = VmActivities(context.inventory, self._store, *reach)
        places = PlaceActivities(self._store, *reach)
        surveys = SurveyActivities(self._store, context.clouds, context.permits, self._patience)
        orphans = IdentifyActivities(context.clouds, context.permits, self._patience)
        on_clouds: list[Callable[..., Any]] = [
            *(vms.operate_vms, vms.settle_vms, vms.forget_vms, surveys.survey_place),
            *(places.validate_place, places.prepare_place, places.release_place, orphans.identify_orphan),
        ]
        records = self._records
        on_actions: list[Callable[..., Any]] = [
            *(records.examine_mci, records.enrol_vms, records.plan_survey, records.adopt_vm),
        ]
        return {ACTIONS_QUEUE: on_actions, **{cloud_queue(csp): on_clouds for csp in context.connections.clouds()}}

    def dry_run_checks(self) -> Mapping[tuple[str, str], Examiner]:
        """Returns the checks of create and scale-out, which ask the clouds before admission."""
        rehearsal = Rehearsal(self.context.client, self._records)
        return {("mci", action): rehearsal.examine for action in ("create", "scale-out")}

    def searches(self) -> Sequence[FindLeftovers]:
        """Finds VMs that a cloud created after their records were deleted."""
        longest = self.context.settings.order_life()
        return [LateVmSearch(self._store, self.context.clouds, self.context.permits, longest).search]

    def fault_verbs(self) -> Mapping[str, tuple[str, ...]]:
        """Returns the verbs of clouds that are simulated, wholly or in part."""
        real, verbs = self.context.connections, (*VERBS, *APART)
        return {csp: verbs for csp in self.context.simulated if csp not in real.filed or real.partly_simulated(csp)}

    def listings(self) -> Sequence[ProviderListing]:
        """VMs, in every place that this worker reaches."""
        return [VmListing(self.context.clouds, self.context.permits, self._patience, self._places)]

    async def _places(self) -> list[str]:
        """Where VMs may be, whether or not we have a record of any there."""
        found = self.context.connections.places() + await self._store.used_places()
        for csp, cloud in self.context.simulated.items():
            found += [placement(csp, region) for region in await cloud.regions()]
        return found
