"""Descriptions for the generated tables of the docs: the code has the names, this file has the words."""

from __future__ import annotations

from domain import faults, limits
from starter.errors import ExitCode

SETTINGS = {
    "key_file": "a private key (PEM, mode 600) that proves who asks; of a worker or gateway: it vouches for others",
    "subject": "whose key it is; without a key, the name to claim instead of the user's",
    "identities": "a YAML file with keys of subjects and issuers, and OIDC issuers; empty: names are claimed",
    "home": "folder for the data of the embedded stack",
    "store_url": "the inventory's database; in production `postgresql://user:password@host/name`",
    "store_pool": "PostgreSQL connections of a worker to the inventory, and as many to the simulated clouds",
    "cloud_url": "the simulated clouds' database; the same for every worker",
    "ui_url": "address of Temporal's Web UI, for printed links; not needed with the embedded server",
    "drain": "seconds that a stopping worker gives calls in flight to end; then other workers repeat them",
    "step_patience": "seconds that an action's next step waits for the worker that has it in memory; then any takes it",
    "deployment": "the name of a worker deployment; with it, an action ends on the build that it began on",
    "build": "this worker's build, such as `2026-11-15`; empty: the program's version",
    "sandbox": "run workflows in Temporal's sandbox, as the tests do; costs CPU",
    "policy_file": "a YAML file on the workers with who may do what; empty: everybody may do everything",
    "quotas_file": "a YAML file on the workers with how much each tenant may have and do; empty: no limits",
    "crm_token_file": "file with the token of the CRM on this machine, see docs/edge.md; empty: a file in the home",
    "keys_file": "file with the keys that encrypt all payloads; the same for workers and the CLI",
    "codec_token_file": "file (mode 600) with the token of `starter codec`; empty: each start makes a new one",
    "metrics": "address on which a worker serves Prometheus metrics, such as `127.0.0.1:9464`; empty: no metrics",
    "traces": "address of the OpenTelemetry collector, such as `http://127.0.0.1:4318`; empty: no traces",
    "log_format": "format of the workers' log on stderr",
    "log_level": "lowest level that is logged",
    "call_timeout": "seconds for one call to a cloud; then its outcome is unknown, and the call is repeated",
    "patience": "seconds for all tries for one VM; then the cloud is asked for the VM's state",
    "connections": "a YAML file of connections to clouds, see docs/aws.md; empty: every cloud is simulated",
    "max_vms": "most VMs of one MCI",
    "heal_interval": "seconds between sweeps of self-healing; 0: only by `starter heal`",
    "heal_limits": "JSON: seconds after which an action counts as slow, by `kind.action`, `kind` or `*`; else 600",
    "retention": "days that ended actions and their history are kept, see docs/operations.md; 0: for ever",
    "backends": "backends of systems that this worker serves; `process` and `container` run on its machine "
    "([systems](systems.md#the-process-backend))",
    "nodes": "nodes of the hypervisor that this worker's host is, as `starter worker --node`; empty: all "
    "([QEMU](qemu.md#several-hosts))",
    "programs": "programs that the backend `process` may run: files, or folders with a slash at the end",
    "images": "images that the backend `container` may run: folders; with a slash at the end, folders of images",
    "container_network": "`host`: containers may ask for the machine's network ([containers](containers.md)); or `own`",
    "max_containers": "most containers of the backend `container` on this machine",
    "runc": "the program that makes containers",
    "service_users": "`own`: each service has a uid of its own where the worker is root; or `worker`",
    "webhooks": "origins that webhooks of CRMs may have, such as `https://crm.example.com`; `none`; empty: any",
    "secrets": "folder of services' secrets; by default in the data folder",
    "archive": "folder to which they are exported before they are removed; empty: `archive` in the home",
    "simulated": "`off`: refuse whatever needs a simulated provider ([what is real](../README.md#ratchet))",
    "simulated_journal": "for tests: a file in which the simulated clouds log the begin and end of calls",
    "simulated_latency": "seconds that a call to a simulated cloud takes, on average",
    "simulated_jitter": "how far that varies: 0.5 is plus or minus half of it",
    "gateway_host": "address on which the gateway listens, see docs/gateway.md; other than loopback only with tokens",
    "gateway_port": "the gateway's port; 0: any free one",
    "gateway_tokens": "a YAML file of the gateway's callers and their tokens' hashes; empty: callers are not proven",
    "gateway_hosts": "JSON list: names in the `Host` header that the gateway answers for, besides its own",
    "gateway_url": "how clients reach the gateway if a proxy is in front, such as `https://ratchet.example.com`",
    "gateway_pool": "the pool of hosts that OpenStack's clients see, see docs/blazar.md",
    "gateway_project": "the project of OpenStack's clients that name none",
    "gateway_origins": "JSON list: pages of other sites that may ask, such as `http://127.0.0.1:1324`",
    "gateway_prices": "a YAML file of what VMs cost, for Tumblebug's reviews; empty: prices are not known",
}

EXITS = {
    ExitCode.DONE: "done, or there was nothing to do",
    ExitCode.FAILED: "the action failed or was cancelled, or you did not confirm it; `verify` found something",
    ExitCode.USAGE: "bad command line or bad input; nothing was changed",
    ExitCode.REFUSED: "refused: busy (409) or not allowed now; nothing was changed",
    ExitCode.FORBIDDEN: "forbidden: the policy does not allow it to you; nothing was changed",
    ExitCode.UNREACHABLE: "Temporal, a worker or the store cannot be reached; `doctor` found something wrong",
    ExitCode.NOT_FOUND: "there is no such object",
    ExitCode.PARTLY: "done for some VMs, failed for others",
    ExitCode.STILL_WAITING: "`--timeout` has passed; the action goes on",
    ExitCode.INTERRUPTED: "Ctrl-C; the action goes on",
}

FAULTS = {
    faults.FaultKind.FAIL: "the cloud refuses; a retry does not help",
    faults.FaultKind.CAPACITY: "create finds no capacity or no quota in the region",
    faults.FaultKind.THROTTLE: "the cloud throttles and asks for a retry after `--retry-after` seconds",
    faults.FaultKind.UNAVAILABLE: "the cloud does not accept the call; a retry helps",
    faults.FaultKind.LOSE_ANSWER: "the cloud does the work, but its answer is lost",
    faults.FaultKind.HANG: "the call takes `--seconds` longer",
    faults.FaultKind.SLOW: "the same, varied by `RATCHET_SIMULATED_JITTER`",
    faults.FaultKind.UNKNOWN_STATUS: "a read returns an unknown state",
    faults.FaultKind.LIE: "the cloud reports `terminated`, but the VM lives",
}

TABLES = {
    "aliases": "the ids of objects in the gateway's dialects: a UUID, or its number",
    "proofs": "a proof that was used, and the run that used it, until it expires",
    "done_once": "the key of what a run does once, for a week: counted in a rate, recorded as ignored",
    "objects": "every object with its status; VMs are objects too",
    "actions": "every admitted action: who asked, its grant, its outcome",
    "locks": "which action holds which path",
    "place_offers": "MCI: the specs and images that a place was seen to offer",
    "connections": "MCI: the network, security group and key of a tenant's VMs in a place, and who changes them now",
    "connection_uses": "MCI: which MCIs use a connection; the tenant's last one removes what is shared",
    "unanswered": "MCI: VMs whose records were removed before the cloud answered their creation; sweeps look for them",
    "lease_hosts": "leases: the hosts of each pool",
    "lease_properties": "leases: the properties of hosts, as text and, where they are numbers, as numbers",
    "lease_bookings": "leases: what each reservation asks for, and for which time",
    "lease_allocations": "leases: which reservation has which host, for which time",
    "lease_timers": "leases: the events to come",
    "system_numbers": "systems: the last number given to a deploy or a teardown",
    "system_definitions": "systems: the definition of each deploy, and the one that it replaced",
    "permits": "rate limits: how many VMs of a region each worker may have in flight, and until when",
    "tenant_usage": "quotas: how many objects and VMs each tenant has, in shards",
    "tenant_rates": "quotas: how far a tenant's requests have used up its minute",
    "audit_seals": "the hash chain over the history, see docs/audit.md; rows are only added",
    "heal_reports": "what each sweep of self-healing found and did",
    "store_identity": "the store's ID, and its incarnation, which each restore from a backup raises",
    "history": "every change, and every ignored write; lines are only added, until their retention ends",
    "pruned": "where a path's history begins, if the retention has removed its oldest lines",
}

MCI_FIELDS = {
    "description": "free text",
    "label": "your own labels",
    "option": "`hold`: prepare, then wait for `continue` or `withdraw` before any VM is made",
    "policyOnPartialFailure": "what to do if some VMs cannot be made: `continue`, `rollback` or `refine`",
    "subGroups": "the groups of VMs, each with the fields below",
}

GROUP_FIELDS = {
    "name": "the group's name; its VMs are `{name}-1`, `{name}-2` and so on",
    "subGroupSize": "how many VMs",
    "connectionName": "the place, as the name of a connection; or give `csp` and `region`",
    "csp": "the cloud: " + ", ".join(limits.CAPS_BY_CLOUD) + ", or a cloud that a connection names",
    "region": "the region of that cloud",
    "provider": "filled in for real clouds; if given, it must be the provider that serves the place",
    "specId": "the VM size, in the cloud's own name",
    "imageId": "the image, in the cloud's own name",
    "label": "your own labels",
}

REQUEST_FIELDS = {
    "proof": "proves `requested_by`; needed where the workers have `RATCHET_IDENTITIES`",
    "path": "the object; also the workflow ID",
    "action": "the verb",
    "force": "begin in any status; end the action that runs on the object",
    "spec": "parameters of the action, such as what to create",
    "requested_by": "who asks, for the history",
    "on_behalf_of": "only for our programs: who made the lease, policy or maintenance that they serve",
    "reason": "why, for the history",
    "request_id": "a request sent twice with the same ID is carried out once",
}
