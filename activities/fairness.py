"""Fairness: where tasks wait in a queue, Temporal serves tenants in turn: one's flood does not delay the others."""

from __future__ import annotations

import hashlib

from temporalio.common import Priority

from domain import registry, wire

MAX_KEY = 64  # bytes that Temporal takes


def tenant_priority(workflow_id: str) -> Priority:
    """Returns the priority of work on an object, by its path or workflow ID: its tenant is the fairness key.

    What belongs to no tenant, such as a sweep, has the default one.
    """
    path = wire.object_path_of(workflow_id)
    if not registry.is_object_path(path):
        return Priority.default
    tenant = registry.tenant_of(path)
    short = tenant if len(tenant) <= MAX_KEY else hashlib.sha256(tenant.encode()).hexdigest()
    return Priority(fairness_key=short)
