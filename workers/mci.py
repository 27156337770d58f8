"""What a worker needs for MCIs: the workflows, and the activities that call clouds, on a queue for each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from activities.books import CloudBooks
from activities.leftovers import Search
from activities.mci.orphans import OrphanActivities
from activities.mci.places import PlaceActivities
from activities.mci.records import RecordActivities
from activities.mci.rehearsal import Rehearsal
from activities.mci.survey import SurveyActivities
from activities.mci.unanswered import LateVms
from activities.mci.vms import VmActivities
from activities.patience import Patience
from activities.pollers import Pollers
from activities.reading import Examiner
from activities.verifying import Audit
from domain.faults import APART
from domain.wire import ACTIONS_QUEUE, cloud_queue, placement
from providers.simulated.machines import VERBS
from store.mci.book import SqlBook
from workers.parts import Parts
from workflows.mci.creation import CreateMci
from workflows.mci.orphans import AdoptOrphan, RemoveOrphan
from workflows.mci.survey import SurveyVms
from workflows.mci.vms import ControlVms, RemoveVms, ScaleGroup

WORKFLOWS: list[type] = [CreateMci, ControlVms, RemoveVms, ScaleGroup, SurveyVms, RemoveOrphan, AdoptOrphan]


def activities(parts: Parts) -> dict[str, list[Callable[..., Any]]]:
    """Queue by queue."""
    patience = Patience(call=parts.settings.call_timeout, total=parts.settings.patience)
    book = SqlBook(parts.database)
    vms = VmActivities(parts.inventory, book, parts.clouds, parts.permits, parts.fence, patience)
    places = PlaceActivities(book, parts.clouds, parts.permits, parts.fence, patience)
    surveys = SurveyActivities(book, parts.clouds, parts.permits, patience)
    records = _records(parts)
    orphans = OrphanActivities(
        parts.inventory, parts.clouds, parts.permits, parts.fence, patience, partial(_places, parts)
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
    return {ACTIONS_QUEUE: on_actions, **{cloud_queue(csp): on_clouds for csp in parts.connections.clouds()}}


def _records(parts: Parts) -> RecordActivities:
    pollers = Pollers(parts.client, parts.serving)
    return RecordActivities(SqlBook(parts.database), parts.connections, parts.settings.max_vms, pollers)


def examiners(parts: Parts) -> dict[tuple[str, str], Examiner]:
    """For a dry run: what creations and growth are examined for before they are admitted."""
    rehearsal = Rehearsal(parts.client, _records(parts))
    return {("mci", action): rehearsal.examine for action in ("create", "scale-out")}


def searches(parts: Parts) -> list[Search]:
    """For self-healing: VMs that a cloud made after their records had gone."""
    longest = parts.settings.order_life()
    return [LateVms(SqlBook(parts.database), parts.clouds, parts.permits, longest).search]


def faults(parts: Parts) -> dict[str, tuple[str, ...]]:
    """Which clouds can be told to fail, and in what: those that are simulated, wholly or in part."""
    real, known = parts.connections, (*VERBS, *APART)
    return {csp: known for csp in parts.simulated if csp not in real.filed or real.partly_simulated(csp)}


def audits(parts: Parts) -> list[Audit]:
    """VMs against the clouds' books, in every place that this worker reaches."""

    return [CloudBooks(parts.inventory, parts.clouds, partial(_places, parts)).audit]


async def _places(parts: Parts) -> list[str]:
    """Where VMs may be, whether or not we have a record of any there."""
    found = parts.connections.places()
    for csp, cloud in parts.simulated.items():
        found += [placement(csp, region) for region in await cloud.regions()]
    return found
