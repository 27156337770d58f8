"""Every name that crosses the wire: queues, workflow types, activities, updates, queries, search attributes."""

from __future__ import annotations

from domain.model import Request

ACTIONS_QUEUE = "actions"
SIMULATED = "simulated"  # the provider that needs no name in a placement


class UnreadableMessage(str):
    """What a handler that takes anything gets instead of a message that cannot be decrypted: the reason."""


# Updates and queries that every action answers.
ADMIT = "admit"
PREEMPT = "preempt"
PROGRESS = "progress"

# Failure types of a closed action.
REFUSED = "Refused"
ACTION_FAILED = "ActionFailed"
TOO_LARGE = "TooLarge"  # of anything that would not fit through Temporal

# Local activities: the only writers of the inventory's actions.
BEGIN = "begin"
ADVANCE = "advance"
FINISH = "finish"
HAS_ENDED = "has_ended"
PERMIT = "permit"  # may whoever asks do this at all?

# Ends, by right of a request that takes over, a run that does not make way for it.
MAKE_WAY = "make_way"

# Standing in line: whoever ends tells those behind.
PASSED = "passed"
STILL_HELD = "still_held"
CLOSE_LINE = "close_line"
OPEN_LINE = "open_line"
DRAIN = "drain"
DRAIN_LINE = "DrainLine"

# Asks Temporal whether holders of locks are alive, and buries the dead.
HEAL_HOLDERS = "heal_holders"

# Self-healing: the sweep, its schedule, and the reports that are kept.
HEAL = "Heal"
HEAL_SCHEDULE = "self-healing"
STORE_SCHEDULE = "store-identity"  # never runs: it keeps which store the namespace uses
SWEEP = "sweep"
READ_REPORTS = "read_reports"

# Workflow types and the activities that call clouds.
CREATE_MCI = "CreateMci"
CONTROL_VMS = "ControlVms"
REMOVE_VMS = "RemoveVms"
OPERATE_VMS = "operate_vms"
SETTLE_VMS = "settle_vms"
FORGET_VMS = "forget_vms"

# Standalone activities: reads, and the simulated cloud's faults.
READ_OBJECT = "read_object"
READ_TREE = "read_tree"
READ_OBJECTS = "read_objects"
READ_HISTORY = "read_history"
READ_LOCKS = "read_locks"
READ_CHECK = "read_check"
READ_OUTCOME = "read_outcome"
READ_STORE = "read_store"
VERIFY = "verify"
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
    """What a worker calls itself, so that whoever looks at a queue sees which clouds it serves."""
    return f"{process}/clouds:{serves}"


def serves(identity: str) -> str:
    """Which clouds a worker says that it serves; empty: it does not say."""
    return identity.partition("/clouds:")[2]


def cloud_queue(csp: str) -> str:
    """The task queue on which calls to one cloud run."""
    return f"cloud-{csp}"


def memo(request: Request) -> dict[str, str]:
    """By this a request that is sent again finds its own action."""
    return {"request_id": request.request_id} if request.request_id else {}


def companion(path: str, role: str) -> str:
    """The ID of a workflow that lives beside an object. No name is empty, so it is never the path of an object."""
    return f"{path}::{role}"


def object_of(workflow_id: str) -> str:
    """The object that an action's workflow is about: its ID, without a companion's role."""
    return workflow_id.partition("::")[0]


def placement(csp: str, region: str, provider: str = "") -> str:
    """Where an object lives: the cloud and the region; if that is not a simulated one, also who makes things there.

    So a simulated region and a real one of the same name are two places, and nobody takes one for the other.
    """
    return f"{csp}/{region}@{provider}" if provider not in ("", SIMULATED) else f"{csp}/{region}"


def split_placement(place: str) -> tuple[str, str]:
    """The cloud of a placement, and the region as clouds are told it: with the provider, if it is a real one."""
    csp, _, region = place.partition("/")
    return csp, region


def split_region(region: str) -> tuple[str, str]:
    """The region's name, and who makes things there."""
    name, _, provider = region.partition("@")
    return name, provider or SIMULATED
