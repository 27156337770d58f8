"""The MCI family in a worker: activities that call clouds are on one queue per cloud."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from activities.dryrun import ExamineRequest
from activities.leftovers import FindLeftovers
from activities.mci.dryrun import DryRunExaminer
from activities.mci.latevms import LateVmSearch
from activities.mci.listing import VmListing
from activities.mci.orphans import IdentifyOrphanActivities
from activities.mci.places import PlaceActivities
from activities.mci.records import MciRecordActivities
from activities.mci.survey import SurveyActivities
from activities.mci.vms import VmActivities
from activities.orphans import ProviderListing
from activities.pollers import PollerCheck
from domain.faults import VERBS_OUTSIDE_WILDCARD
from domain.mci import KINDS
from domain.mci.tables import MciPhase
from domain.wire import ACTIONS_QUEUE, cloud_queue, make_placement
from providers.steps import VERBS
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
    """The MCI family for a worker: MCIs, their VMs, and VMs without a record."""

    name = "mci"
    kinds = KINDS
    held_phases = (MciPhase.PREPARED,)
    workflows = (CreateMci, ControlVms, RemoveVms, ScaleGroup, SurveyVms, AdoptOrphan)

    @classmethod
    def hooks(cls) -> HooksByKind:
        return HOOKS

    def __init__(self, context: WorkerContext) -> None:
        super().__init__(context)
        self._store = SqlMciStore(context.database)
        self._listing = VmListing(context.clouds, context.permits, self.retry, self._list_places)
        pollers = PollerCheck(context.client, context.serving)
        self._records = MciRecordActivities(
            self._store, context.connections, context.settings.max_vms, pollers, context.authorizer
        )

    def activities(self) -> ActivitiesByQueue:
        context = self.context
        reach = (context.clouds, context.permits, context.fence, self.retry)
        vms = VmActivities(context.inventory, self._store, *reach)
        places = PlaceActivities(self._store, *reach)
        surveys = SurveyActivities(
            self._store, context.clouds, context.permits, self.retry, context.inventory, self._listing
        )
        orphans = IdentifyOrphanActivities(context.clouds, context.permits, self.retry)
        on_clouds: list[Callable[..., Any]] = [
            *(vms.operate_vms, vms.settle_vms, vms.forget_vms, surveys.survey_place),
            *(places.validate_place, places.prepare_place, places.release_place, orphans.identify_orphan),
        ]
        records = self._records
        return {
            ACTIONS_QUEUE: [
                *(records.examine_mci_request, records.add_vms_to_action, records.plan_survey, records.adopt_orphan),
            ],
            **{cloud_queue(csp): on_clouds for csp in context.connections.served_clouds()},
        }

    def dry_run_checks(self) -> Mapping[tuple[str, str], ExamineRequest]:
        """Returns the checks of create and scale-out, which ask the clouds before admission."""
        rehearsal = DryRunExaminer(self.context.client, self._records)
        return {("mci", action): rehearsal.examine_request for action in ("create", "scale-out")}

    def leftover_searches(self) -> Sequence[FindLeftovers]:
        """Finds VMs that a cloud created after their records were deleted."""
        longest = self.context.settings.order_lifetime()
        return [LateVmSearch(self._store, self.context.clouds, self.context.permits, longest).find_late_vms]

    def fault_verbs(self) -> Mapping[str, tuple[str, ...]]:
        """Returns the verbs of clouds that are simulated, wholly or in part."""
        real, verbs = self.context.connections, (*VERBS, *VERBS_OUTSIDE_WILDCARD)
        return {
            csp: verbs
            for csp in self.context.simulated
            if csp not in real.clouds_in_file or real.is_partly_simulated(csp)
        }

    def listings(self) -> Sequence[ProviderListing]:
        """Lists the VMs in every place that this worker reaches, for the audit."""
        return [self._listing]

    async def _list_places(self) -> list[str]:
        """Lists every place that may have VMs, also those without a record."""
        found = self.context.connections.real_places() + await self._store.used_places()
        for csp, cloud in self.context.simulated.items():
            found += [make_placement(csp, region) for region in await cloud.list_regions()]
        return found
