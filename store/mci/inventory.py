"""The MCI family's transactions, as its activities call them."""

from __future__ import annotations

from store.mci import adoption, connections, enrolment, groups, surveys, unanswered
from store.transaction import Store, transaction


class SqlMciStore(Store):
    """The MCI family's store: `domain.mci.messages.MciStore` on SQLite or PostgreSQL."""

    used_places = transaction(connections.list_used_places)
    list_unverified_needs = transaction(connections.list_unverified_needs)
    mark_needs_verified = transaction(connections.mark_needs_verified)
    read_shared_resources = transaction(connections.read_shared_resources)
    hold_connection = transaction(connections.hold_connection)
    renew_hold = transaction(connections.renew_hold)
    record_resource = transaction(connections.record_resource)
    release_connection_hold = transaction(connections.release_connection_hold)
    leave_place = transaction(connections.leave_place)
    finish_leaving = transaction(connections.finish_leaving)
    count_vms = transaction(groups.count_vms)
    place_of_group = transaction(groups.place_of_group)
    add_vms_to_action = transaction(enrolment.add_vms_to_action)
    adopt_orphan = transaction(adoption.adopt_orphan)
    plan_survey = transaction(surveys.plan_survey)
    list_vms_in_status = transaction(surveys.list_vms_in_status)
    apply_corrections = transaction(surveys.apply_corrections)
    list_unanswered_places = transaction(unanswered.list_unanswered_places)
    list_unanswered_orders = transaction(unanswered.list_unanswered_orders)
    forget_unanswered = transaction(unanswered.forget_unanswered)
