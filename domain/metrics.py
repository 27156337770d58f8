"""The names of what is counted and timed, and what each is told apart by. The dashboard is held against these."""

from __future__ import annotations

ACTIONS = "ratchet_actions"  # that ended: kind, action, outcome
ACTION_LATENCY = "ratchet_action_latency"  # from the request to the end: kind, action
REFUSALS = "ratchet_refusals"  # kind, action, category
LOCK_WAIT = "ratchet_lock_wait"  # of a forced action for those below it to clean up: kind, action
STORE_LATENCY = "ratchet_store_latency"  # of a transaction, the wait for others included: operation
PROVIDER_CALLS = "ratchet_provider_calls"  # one for each VM that a call is about: csp, region, call, outcome
PROVIDER_LATENCY = "ratchet_provider_latency"  # of a call, however many VMs it is about: csp, region, call
HEALS = "ratchet_heals"  # holders of locks that were looked at: result

COUNTERS = {
    ACTIONS: "actions that ended",
    REFUSALS: "requests that were refused",
    PROVIDER_CALLS: "answers of clouds, one for each VM of a call",
    HEALS: "holders of locks that stood in the way of somebody",
}
TIMERS = {
    ACTION_LATENCY: "from the request to the end of an action",
    LOCK_WAIT: "that forced actions waited for those below them",
    STORE_LATENCY: "of a transaction on the inventory",
    PROVIDER_LATENCY: "of a call to a cloud",
}
