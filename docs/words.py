"""What the generated parts of the docs say about things that the code knows only by name."""

from __future__ import annotations

from domain import faults, limits
from starter.errors import Exit

SETTINGS = {
    "home": "where the embedded stack keeps its data",
    "store_url": "the inventory's database; in production `postgresql://user:password@host/name`",
    "store_pool": "connections to PostgreSQL that a worker keeps, for the inventory and for the simulated clouds each",
    "cloud_url": "the simulated clouds' database; every worker must use the same one",
    "ui_url": "Temporal's Web UI, for the links that are printed; the embedded one is known",
    "drain": "seconds that calls in flight have to end when a worker is told to stop; then others go on with them",
    "step_patience": "seconds that an action's next step is kept for the worker that knows it; then any other takes it",
    "deployment": "a name makes workers versioned: actions end on the build that they began on",
    "build": "this worker's build, such as `2026-11-15`; if not said, the version of the program",
    "sandbox": "run workflows in Temporal's sandbox, as the tests do; costs CPU",
    "policy_file": "who may do what, a YAML file on the workers; if empty, everybody may do everything",
    "crm_token_file": "the token of the CRM that runs here, see docs/edge.md; if not said, a file under the home",
    "keys_file": "keys with which whatever goes through Temporal is encrypted; the same on workers and for the CLI",
    "metrics": "where workers serve metrics for Prometheus, such as `127.0.0.1:9464`; nowhere if empty",
    "traces": "the OpenTelemetry collector, such as `http://127.0.0.1:4318`; nothing is traced if empty",
    "log_format": "how workers log to stderr",
    "log_level": "from which level on",
    "call_timeout": "seconds for one call to a cloud; then its outcome is unknown, and it is made again",
    "patience": "seconds for all tries for one VM; then the cloud is asked what the VM is",
    "connections": "a YAML file of connections to clouds, see docs/aws.md; without one everything is simulated",
    "max_vms": "the most VMs that one MCI may have here",
    "heal_interval": "seconds between sweeps of self-healing; 0: only when asked",
    "heal_limits": "seconds until an action is slow, or gone if unknown there: `kind.action`, `kind`, `*`; else 600",
    "retention": "days for which ended actions and their history are kept, see docs/operations.md; 0: for ever",
    "archive": "the folder to which they are exported before they go; if not said, `archive` in the home",
    "simulated_journal": "for tests: a file in which the simulated clouds note when calls begin and end",
    "simulated_latency": "seconds that a call to a simulated cloud takes",
    "simulated_jitter": "by how much that varies, as a part of it",
}

EXITS = {
    Exit.DONE: "done, or there was nothing to do",
    Exit.FAILED: "the action failed or was cancelled, or the question was not answered with yes",
    Exit.USAGE: "bad words or bad input; nothing was changed",
    Exit.REFUSED: "refused: busy (409) or not allowed now; nothing was changed",
    Exit.UNREACHABLE: "Temporal, a worker or the store cannot be reached",
    Exit.NOT_FOUND: "there is no such object",
    Exit.PARTLY: "done for some VMs, failed for others",
    Exit.STILL_WAITING: "`--timeout` has passed; the action goes on",
    Exit.INTERRUPTED: "Ctrl-C; the action goes on",
}

FAULTS = {
    faults.FaultKind.FAIL: "the cloud says no, for good",
    faults.FaultKind.CAPACITY: "create finds no room in the region, or its quota used up",
    faults.FaultKind.THROTTLE: "too many calls; come back after `--retry-after` seconds",
    faults.FaultKind.UNAVAILABLE: "the cloud does not take the call",
    faults.FaultKind.LOSE_ANSWER: "the work is done, but the answer gets lost",
    faults.FaultKind.HANG: "the call takes `--seconds` longer",
    faults.FaultKind.SLOW: "the same, more or less",
    faults.FaultKind.UNKNOWN_STATUS: "a read finds the VM in a state that nobody knows",
    faults.FaultKind.LIE: "the cloud says terminated, but the VM lives",
}

TABLES = {
    "objects": "what there is, and how it is; VMs are objects too",
    "actions": "every action that was ever admitted: who asked, what was granted, what became of it",
    "locks": "who holds what",
    "connections": "MCI: what the VMs of a cloud's region share, and who prepares or releases it just now",
    "connection_uses": "MCI: which MCIs use a connection; the last one to leave removes what is shared",
    "unanswered": "MCI: VMs whose records went before a cloud had answered for them; sweeps look for them",
    "lease_hosts": "leases: what a pool has to give",
    "lease_bookings": "leases: what each reservation wants, and when",
    "lease_allocations": "leases: which host is whose, from when to when",
    "lease_timers": "leases: what is due, and when",
    "system_numbers": "systems: the last number given to a deploy or a teardown",
    "permits": "rate limits: which worker may have how many VMs of a region in flight, and until when",
    "heal_reports": "what sweeps of self-healing found and did",
    "store_identity": "which store this is: an id for life, and an incarnation that each restore from a backup raises",
    "history": "every change, and every write that was ignored; lines are only added, until their retention is over",
    "pruned": "where the history of a path begins whose oldest lines are gone by the retention",
}

MCI_FIELDS = {
    "description": "free text",
    "label": "words of your own",
    "option": "`hold`: prepare, then wait for `continue` or `withdraw` before any VM is made",
    "policyOnPartialFailure": "when some VMs cannot be made: `continue`, `rollback` or `refine`",
    "subGroups": "VMs that are alike, each group with the fields below",
}

GROUP_FIELDS = {
    "name": "its VMs are called `{name}-1`, `{name}-2` and so on",
    "subGroupSize": "how many VMs",
    "connectionName": "where, by the name of a connection; or else by the next two",
    "csp": "the cloud: " + ", ".join(limits.CLOUDS) + ", or another one that a connection names",
    "region": "where in that cloud",
    "provider": "who makes the VMs there: filled in where that is a real cloud; refused if it is somebody else",
    "specId": "the size of each VM, as the cloud names it",
    "imageId": "what they boot, as the cloud names it",
    "label": "words of your own",
}

REQUEST_FIELDS = {
    "path": "the object; also the workflow ID",
    "action": "what to do",
    "force": "whatever the status; ends the action that runs there",
    "spec": "what to create; only for `create`",
    "requested_by": "who asks, for the history",
    "reason": "why, for the history",
    "request_id": "asked twice with one ID: done once",
}
