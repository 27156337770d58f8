"""Names, help texts and labels of the metrics. A test compares the dashboard with them."""

from __future__ import annotations

ACTIONS = "ratchet_actions"
ACTION_LATENCY = "ratchet_action_latency"
REFUSALS = "ratchet_refusals"
LOCK_WAIT = "ratchet_lock_wait"
STORE_LATENCY = "ratchet_store_latency"
PROVIDER_CALLS = "ratchet_provider_calls"
PROVIDER_LATENCY = "ratchet_provider_latency"
HEALS = "ratchet_heals"

COUNTER_HELP = {
    ACTIONS: "actions that ended",
    REFUSALS: "requests that were refused",
    PROVIDER_CALLS: "provider answers, one for each VM of a call",
    HEALS: "lock holders that blocked a request: dead ones are removed",
}
TIMER_HELP = {
    ACTION_LATENCY: "seconds from the request to the end of an action",
    LOCK_WAIT: "seconds that forced actions waited for those below them to clean up",
    STORE_LATENCY: "seconds of a transaction on the inventory, waiting included",
    PROVIDER_LATENCY: "seconds of a call to a cloud, for any number of VMs",
}
LABELS_OF_METRIC = {
    ACTIONS: ("kind", "action", "outcome"),
    ACTION_LATENCY: ("kind", "action"),
    REFUSALS: ("kind", "action", "category"),
    LOCK_WAIT: ("kind", "action"),
    STORE_LATENCY: ("operation",),
    PROVIDER_CALLS: ("csp", "region", "call", "outcome"),
    PROVIDER_LATENCY: ("csp", "region", "call"),
    HEALS: ("result",),
}


def prometheus_name(name: str) -> str:
    """Returns the metric's name in Prometheus: a counter, or the count of a timer."""
    return f"{name}_total" if name in COUNTER_HELP else f"{name}_seconds_count"
