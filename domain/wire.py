"""Every name that a caller spells: queues, workflow types, standalone activities, updates, queries, search attributes.

Other activities are named after their methods.

Recorded histories and running workflows contain these names, so changing one breaks them.
"""

from __future__ import annotations

from domain.model import Request

ACTIONS_QUEUE = "actions"
BUILDS_QUEUE = "builds"  # of orders about versioned workers; itself without versions
SIMULATED = "simulated"  # the provider that placements leave out


class UnreadableMessage(str):
    """Stands for a message that cannot be decrypted: the handler gets the reason, as text."""


# Updates and queries that every action answers.
ADMIT_UPDATE = "admit"
PREEMPT_UPDATE = "preempt"
PROGRESS_QUERY = "progress"

# Failure types of a closed action.
REFUSED_ERROR_TYPE = "Refused"
ACTION_FAILED_ERROR_TYPE = "ActionFailed"
UNFIT_ERROR_TYPE = "UnfitMessage"  # of input of another shape, or of more or fewer arguments than one
TOO_LARGE_ERROR_TYPE = "TooLarge"  # of a payload over Temporal's size limit
REFUSED_PAYLOAD_ERROR_TYPE = "RefusedPayload"  # of plaintext where keys are set, and of another workflow's payload

# Terminates a run that does not make way for a request that takes over.
MAKE_WAY_ACTIVITY = "make_way"
CANCEL_ACTIVITY = "cancel_action"
PROMOTE_BUILD = "promote_build"

# The wait queue: an action that ends signals those behind it.
PASSED_SIGNAL = "passed"
DRAIN = "drain"
DRAIN_QUEUE = "DrainLine"

# The signal to a clock: something may be due earlier than planned.
LOOK_AGAIN = "look_again"

# Self-healing: the sweep, its schedule, and the reports that are kept.
HEAL_WORKFLOW = "Heal"
HEAL_SCHEDULE = "self-healing"
STORE_SCHEDULE = "store-identity"  # never runs: its memo says which store the namespace uses
READ_REPORTS = "read_reports"

# Workflow types.
CREATE_MCI = "CreateMci"
CONTROL_VMS = "ControlVms"
REMOVE_VMS = "RemoveVms"
REMOVE_ORPHAN = "RemoveOrphan"

# Standalone activities: reads, and the simulated cloud's faults.
READ_OBJECT = "read_object"
READ_TREE = "read_tree"
READ_OBJECTS = "read_objects"
READ_HISTORY = "read_history"
READ_LOCKS = "read_locks"
READ_CHECK = "read_check"
READ_OUTCOME = "read_outcome"
READ_ACTION = "read_action"
READ_STORE = "read_store"
READ_ACCESS = "read_access"
LOGIN = "login"  # the activity, and the beginning of the path under which the audit trail has refused logins
READ_QUOTAS = "read_quotas"
READ_ORPHANS = "read_orphans"
VERIFY_ACTIVITY = "verify"
CLOUD_FAULTS = "cloud_faults"
READ_CONNECTIONS = "read_connections"

# Search attributes: name -> Temporal's type.
SEARCH_ATTRIBUTES = {
    "ObjectPath": "Keyword",
    "ObjectKind": "Keyword",
    "Action": "Keyword",
    "Phase": "Keyword",
    "Providers": "KeywordList",
    "Progress": "Int",
}


def worker_identity(process: str, serves: str) -> str:
    """Returns a worker's Temporal identity, which shows in a queue's pollers which clouds it serves."""
    return f"{process}/clouds:{serves}"


def served_clouds_of(identity: str) -> str:
    """Returns the clouds that a worker's identity names, or an empty string."""
    return identity.partition("/clouds:")[2]


def cloud_queue(csp: str) -> str:
    """Returns the task queue for calls to one cloud."""
    return f"cloud-{csp}"


def request_memo(request: Request) -> dict[str, str]:
    """Returns the workflow memo that lets a repeated request find its own action."""
    return {"request_id": request.request_id} if request.request_id else {}


def companion_id(path: str, role: str) -> str:
    """Returns the workflow ID of a companion of an object. Names are never empty, so it is never an object's path."""
    return f"{path}::{role}"


def object_path_of(workflow_id: str) -> str:
    """Returns the path of the object that a workflow belongs to: its ID without a companion's role."""
    return workflow_id.partition("::")[0]


def companion_role_of(workflow_id: str) -> str:
    """Returns the role of a companion, such as a hidden action; empty for an object's own workflow."""
    return workflow_id.partition("::")[2]


def make_placement(csp: str, region: str, provider: str = "") -> str:
    """Returns an object's placement: cloud and region, and the provider unless it is simulated.

    So a simulated region and a real one of the same name are two placements, and cannot be confused.
    """
    return f"{csp}/{region}@{provider}" if provider not in ("", SIMULATED) else f"{csp}/{region}"


def split_placement(place: str) -> tuple[str, str]:
    """Returns a placement's cloud, and its region as providers get it: with the provider's name if it is real."""
    csp, _, region = place.partition("/")
    return csp, region


def split_region_and_provider(region: str) -> tuple[str, str]:
    """Returns the region's name and its provider."""
    name, _, provider = region.partition("@")
    return name, provider or SIMULATED
