"""The MCI family's transactions, as its activities call them."""

from __future__ import annotations

from store.mci import adopting, connections, enrolment, groups, surveys, unanswered
from store.transaction import Store, transaction


class SqlMciStore(Store):
    """The MCI family's store: `domain.mci.messages.MciStore` on SQLite or PostgreSQL."""

    used_places = transaction(connections.used_places)
    unverified = transaction(connections.unverified)
    mark_verified = transaction(connections.mark_verified)
    shared_resources = transaction(connections.resources)
    hold_connection = transaction(connections.acquire_hold)
    renew_hold = transaction(connections.renew_hold)
    record_resource = transaction(connections.record_resource)
    release_hold = transaction(connections.release_hold)
    leave_place = transaction(connections.leave_place)
    finish_leaving = transaction(connections.finish_leaving)
    count_vms = transaction(groups.count_vms)
    place_of_group = transaction(groups.place)
    enrol = transaction(enrolment.add_vms_to_action)
    adopt = transaction(adopting.adopt)
    plan_survey = transaction(surveys.plan_survey)
    vms_in_status = transaction(surveys.vms_in_status)
    known_cloud_ids = transaction(surveys.cloud_ids)
    apply_corrections = transaction(surveys.apply_corrections)
    unanswered_places = transaction(unanswered.places)
    unanswered_page = transaction(unanswered.page)
    forget_unanswered = transaction(unanswered.forget)
