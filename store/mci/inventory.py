"""The MCI family's transactions, as its activities call them."""

from __future__ import annotations

from store.mci import adoption, connections, enrolment, groups, surveys, unanswered
from store.transaction import SqlStore, transaction


class SqlMciStore(SqlStore):
    """The MCI family's store: `domain.mci.messages.MciStore` on SQLite or PostgreSQL."""

    used_places = transaction(connections.list_used_places)
    list_unverified_requirements = transaction(connections.list_unverified_requirements)
    record_verified_requirements = transaction(connections.record_verified_requirements)
    read_shared_resources = transaction(connections.read_shared_resources)
    acquire_connection_lock = transaction(connections.acquire_connection_lock)
    renew_connection_lock = transaction(connections.renew_connection_lock)
    record_shared_resource = transaction(connections.record_shared_resource)
    release_connection_lock = transaction(connections.release_connection_lock)
    leave_place = transaction(connections.leave_place)
    finish_leaving_place = transaction(connections.finish_leaving_place)
    count_vms = transaction(groups.count_vms)
    place_of_group = transaction(groups.place_of_group)
    add_vms_to_action = transaction(enrolment.add_vms_to_action)
    adopt_orphan = transaction(adoption.adopt_orphan)
    plan_survey = transaction(surveys.plan_survey)
    list_vms_in_status = transaction(surveys.list_vms_in_status)
    apply_corrections = transaction(surveys.apply_corrections)
    list_unanswered_places = transaction(unanswered.list_unanswered_places)
    list_unanswered_orders = transaction(unanswered.list_unanswered_orders)
    forget_unanswered_orders = transaction(unanswered.forget_unanswered_orders)
