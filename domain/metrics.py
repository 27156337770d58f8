"""The names of what is counted and timed, and what each is told apart by. The dashboard is held against these."""

from __future__ import annotations

ACTIONS = "ratchet_actions"
ACTION_LATENCY = "ratchet_action_latency"
REFUSALS = "ratchet_refusals"
LOCK_WAIT = "ratchet_lock_wait"
STORE_LATENCY = "ratchet_store_latency"
PROVIDER_CALLS = "ratchet_provider_calls"
PROVIDER_LATENCY = "ratchet_provider_latency"
HEALS = "ratchet_heals"

COUNTERS = {
    ACTIONS: "actions that ended",
    REFUSALS: "requests that were refused",
    PROVIDER_CALLS: "answers of clouds, one for each VM of a call",
    HEALS: "holders of locks that stood in the way of somebody: dead ones are buried",
}
TIMERS = {
    ACTION_LATENCY: "from the request to the end of an action",
    LOCK_WAIT: "that forced actions waited for those below them to clean up",
    STORE_LATENCY: "of a transaction on the inventory, the wait for others included",
    PROVIDER_LATENCY: "of a call to a cloud, however many VMs it is about",
}
LABELS = {
    ACTIONS: ("kind", "action", "outcome"),
    ACTION_LATENCY: ("kind", "action"),
    REFUSALS: ("kind", "action", "category"),
    LOCK_WAIT: ("kind", "action"),
    STORE_LATENCY: ("operation",),
    PROVIDER_CALLS: ("csp", "region", "call", "outcome"),
    PROVIDER_LATENCY: ("csp", "region", "call"),
    HEALS: ("result",),
}


def in_prometheus(name: str) -> str:
    """As Prometheus knows it: a counter, or how often something was timed."""
    return f"{name}_total" if name in COUNTERS else f"{name}_seconds_count"
