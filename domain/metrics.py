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
OPEN_ACTIONS = "ratchet_open_actions"
OLDEST_ACTION = "ratchet_oldest_action_seconds"
HELD_ACTIONS = "ratchet_held_actions"
DRIFTED_OBJECTS = "ratchet_drifted_objects"
LAST_SWEEP = "ratchet_last_sweep_seconds"
STORE_REACHABLE = "ratchet_store_reachable"

# Upper bounds of the histograms, in seconds: a transaction takes milliseconds, an action up to an hour.
LATENCY_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1_200, 1_800, 3_600)

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
GAUGE_HELP = {
    OPEN_ACTIONS: "actions that have begun and not ended, in the whole store",
    OLDEST_ACTION: "age of the oldest open action",
    HELD_ACTIONS: "MCIs that hold: they wait for continue or withdraw",
    DRIFTED_OBJECTS: "what the last sweep found: actions that were cut off or slow, and leftovers",
    LAST_SWEEP: "seconds since the last sweep of self-healing",
    STORE_REACHABLE: "1 if the store answers this worker, else 0",
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
    **dict.fromkeys(GAUGE_HELP, ()),
}


def prometheus_name(name: str) -> str:
    """Returns the metric's name in Prometheus: a gauge, a counter, or the count of a timer."""
    if name in GAUGE_HELP:
        return name
    return f"{name}_total" if name in COUNTER_HELP else f"{name}_seconds_count"
