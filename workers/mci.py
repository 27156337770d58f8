"""What a worker needs for MCIs: the workflows, and the activities that call clouds, on a queue for each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from activities.leftovers import FindLeftovers
from activities.mci.audit import VmAudit
from activities.mci.orphans import OrphanActivities
from activities.mci.places import PlaceActivities
from activities.mci.records import RecordActivities
from activities.mci.rehearsal import Rehearsal
from activities.mci.survey import SurveyActivities
from activities.mci.unanswered import LateVmSearch
from activities.mci.vms import VmActivities
from activities.pollers import Pollers
from activities.reads import Examiner
from activities.retry import ProviderRetry
from activities.verify import Audit
from domain.faults import APART
from domain.wire import ACTIONS_QUEUE, cloud_queue, placement
from providers.simulated.vms import VERBS
from store.mci.inventory import SqlMciStore
from workers.context import WorkerContext
from workflows.mci.creation import CreateMci
from workflows.mci.orphans import AdoptOrphan, RemoveOrphan
from workflows.mci.survey import SurveyVms
from workflows.mci.vms import ControlVms, RemoveVms, ScaleGroup

WORKFLOWS: list[type] = [CreateMci, ControlVms, RemoveVms, ScaleGroup, SurveyVms, RemoveOrphan, AdoptOrphan]


def activities(context: WorkerContext) -> dict[str, list[Callable[..., Any]]]:
    """Queue by queue."""
    patience = ProviderRetry(call=context.settings.call_timeout, total=context.settings.patience)
    book = SqlMciStore(context.database)
    vms = VmActivities(context.inventory, book, context.clouds, context.permits, context.fence, patience)
    places = PlaceActivities(book, context.clouds, context.permits, context.fence, patience)
    surveys = SurveyActivities(book, context.clouds, context.permits, patience)
    records = _records(context)
    orphans = OrphanActivities(
        context.inventory, context.clouds, context.permits, context.fence, patience, partial(_places, context)
    )
    on_clouds: list[Callable[..., Any]] = [
        *(vms.operate_vms, vms.settle_vms, vms.forget_vms, surveys.survey_place),
        *(places.validate_place, places.prepare_place, places.release_place, orphans.terminate_orphan),
        orphans.identify_orphan,
    ]
    on_actions: list[Callable[..., Any]] = [
        *(records.examine_mci, records.enrol_vms, records.plan_survey, records.adopt_vm),
        *(orphans.read_orphans, orphans.terminate_orphan),
    ]
    return {ACTIONS_QUEUE: on_actions, **{cloud_queue(csp): on_clouds for csp in context.connections.clouds()}}


def _records(context: WorkerContext) -> RecordActivities:
    pollers = Pollers(context.client, context.serving)
    return RecordActivities(SqlMciStore(context.database), context.connections, context.settings.max_vms, pollers)


def examiners(context: WorkerContext) -> dict[tuple[str, str], Examiner]:
    """For a dry run: what creations and growth are examined for before they are admitted."""
    rehearsal = Rehearsal(context.client, _records(context))
    return {("mci", action): rehearsal.examine for action in ("create", "scale-out")}


def searches(context: WorkerContext) -> list[FindLeftovers]:
    """For self-healing: VMs that a cloud made after their records had gone."""
    longest = context.settings.order_life()
    return [LateVmSearch(SqlMciStore(context.database), context.clouds, context.permits, longest).search]


def faults(context: WorkerContext) -> dict[str, tuple[str, ...]]:
    """Which clouds can be told to fail, and in what: those that are simulated, wholly or in part."""
    real, known = context.connections, (*VERBS, *APART)
    return {csp: known for csp in context.simulated if csp not in real.filed or real.partly_simulated(csp)}


def audits(context: WorkerContext) -> list[Audit]:
    """VMs against the clouds' books, in every place that this worker reaches."""

    return [VmAudit(context.inventory, context.clouds, partial(_places, context)).audit]


async def _places(context: WorkerContext) -> list[str]:
    """Where VMs may be, whether or not we have a record of any there."""
    found = context.connections.places()
    for csp, cloud in context.simulated.items():
        found += [placement(csp, region) for region in await cloud.regions()]
    return found
