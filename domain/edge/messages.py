"""What the controller and a CRM say to each other, and the names that cross the wire between them.

Answers come from outside: they are parsed leniently, cut to size, and judged elsewhere. Nothing in them is trusted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, ValidationError, model_validator

from domain.edge.tables import GONE
from domain.errors import one_line
from domain.fields import ObjectPath, describe_errors
from domain.model import Model
from domain.statetable import NONE
from domain.wire import UnreadableMessage

# Workflow types.
CHANGE_INSTANCE = "ChangeInstance"
BRING_UP_CLOUDLET = "BringUpCloudlet"
UPGRADE_CLOUDLET = "UpgradeCloudlet"
MAINTAIN_CLOUDLET = "MaintainCloudlet"
REKEY_CLOUDLET = "RekeyCloudlet"
DELETE_CLOUDLET = "DeleteCloudlet"
CLOUDLET_LINK = "CloudletLink"
KEEP_POLICY = "KeepPolicy"
FOLLOW_DEMAND = "FollowDemand"

# Signals from outside, and between our own workflows.
CRM_RESPONSE = "crm_response"
CRM_CONNECT = "crm_connect"
CRM_DISCONNECT = "crm_disconnect"
DEMAND = "demand"
POLICY_CHANGED = "policy_changed"
RECONNECTED = "reconnected"
CONNECTION_LOST = "connection_lost"

# The update by which the link reaches an action that may hear no more signals.
HEAR = "hear"
FULL = "limit for signal"  # Temporal's words to who signals a run that has heard as many as one may

# Companions of an object.
LINK = "link"
LOOP = "loop"

# Activities of ours, and those that an agent runs on its cloudlet's queue.
CRM_SEND = "crm_send"
CRM_IGNORED = "crm_ignored"
CRM_CONNECTED = "crm_connected"
CRM_ANSWERED = "crm_answered"
CRM_LOST = "crm_lost"
CRM_REJOINED = "crm_rejoined"
CRM_EVERYTHING = "crm_everything"
CRM_PROBE = "crm_probe"
CRM_HAND_IN = "crm_hand_in"
FAILOVER_PLAN = "failover_plan"
POLICY_FACTS = "policy_facts"
POLICY_KEPT = "policy_kept"
CRM_REQUESTS = "crm_requests"
CRM_SESSION = "crm_session"

MAX_ERRORS = 20
MAX_ERROR = 4_000  # characters of all errors together that are kept
MAX_INSTANCES = 5_000  # on one page of a connection
MAX_PAGES = 100
PAGE_BYTES = 400_000  # of what is sent in pages: Temporal takes 2 MB at once


def crm_queue(cloudlet: str, version: str) -> str:
    """The task queue from which a cloudlet's CRM of this version takes its requests."""
    return f"crm-{cloudlet}-{version}"


class CrmVerb(StrEnum):
    """What a CRM is asked to do."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    REPORT = "report"  # say how far you are
    UPGRADE = "upgrade"  # start the CRM of another version
    RECONNECT = "reconnect"  # connect again, with a new notify-id
    MAINTAIN = "maintain"
    OPERATE = "operate"  # back to normal
    SHUTDOWN = "shutdown"  # the cloudlet goes
    ALL_DATA = "all-data"  # everything that should be there
    ACK = "ack"  # your connection is known; only for CRMs without a session
    PING = "ping"  # are you still there? likewise; any good answer will do


class CrmRequest(Model):
    """One order to a CRM. `epoch` and `attempt` tell a repeated order from a new one."""

    path: str
    verb: CrmVerb
    notify_id: int
    version: str
    epoch: int = 0
    attempt: int = 1
    reply_to: str = ""  # the workflow that awaits the answer; the path's own if empty
    spec: dict[str, Any] = {}
    undo: bool = False

    @property
    def key(self) -> str:
        return f"{self.path}/{self.verb}/{self.epoch}/{self.attempt}"


class CrmRequests(Model):
    """Several requests to a CRM."""

    requests: list[CrmRequest]


class CrmAddress(Model):
    """Which CRM: of which cloudlet, connected how, in which version, under which notify-id."""

    cloudlet: str
    version: str
    notify_id: int
    transport: str = "queue"
    url: str = ""
    probe: float = 30  # seconds between pings of a CRM without a session

    def connection(self) -> dict[str, Any]:
        """As requests and records name it."""
        return {"notify_id": self.notify_id, "version": self.version}


class OnBehalf(Model):
    """Of which action something goes out; of none if the epoch is 0: then nobody has to prove a right to it."""

    path: str = ""
    epoch: int = 0


class CrmPost(OnBehalf):
    """Requests, and where they go."""

    to: CrmAddress
    requests: list[CrmRequest]


class AllData(OnBehalf):
    """Who is to be sent all data."""

    to: CrmAddress


def _cut(value: Any) -> Any:
    return one_line(value, 500) if isinstance(value, str) else value


def _cut_list(value: Any) -> Any:
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list):
        return value
    return [one_line(each, MAX_ERROR) if isinstance(each, str) else each for each in value[:MAX_ERRORS]]


CutText = Annotated[str, BeforeValidator(_cut)]
Proof = Annotated[str, Field(max_length=200)]


class ExternalMessage(BaseModel):
    """Fields that we do not know are left out: a newer CRM may send more."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    _raw: dict[str, Any] = PrivateAttr(default={})  # as it came: what a proof is about

    @property
    def raw(self) -> dict[str, Any]:
        return self._raw

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, raw: Any) -> Any:
        """Temporal's HTTP API makes null of an empty list: what is null was not said."""
        return {key: value for key, value in raw.items() if value is not None} if isinstance(raw, dict) else raw


class CrmProgress(ExternalMessage):
    """Task `task` of `of`, now at `step`."""

    task: int = Field(0, ge=0, le=1_000_000)
    of: int = Field(0, ge=0, le=1_000_000)
    step: CutText = ""
    message: CutText = ""

    def describe(self) -> str:
        words = " ".join(word for word in (self.step, self.message) if word)
        return f"task {self.task} of {self.of}: {words}" if self.of else words


class CrmResponse(ExternalMessage):
    """A CRM's answer: the state that it has brought the object to, or what went wrong."""

    state: Annotated[str, Field(min_length=1, max_length=100)]
    notify_id: int
    errors: Annotated[list[str], BeforeValidator(_cut_list)] = []
    runtime: dict[str, Any] | None = None
    progress: CrmProgress | None = None
    path: ObjectPath | None = None  # if it is not the object that the workflow is about
    version: CutText = ""
    epoch: int = 0  # of the request that it answers; 0: a word of its own
    proof: Proof = ""

    @property
    def status(self) -> str:
        """The state in our words."""
        return NONE if self.state in GONE else self.state

    def reason(self) -> str:
        """All errors, joined and cut."""
        return one_line("; ".join(self.errors), MAX_ERROR)

    def kept_runtime(self) -> dict[str, Any] | None:
        """What is kept of the runtime: only if it is small."""
        small = self.runtime is not None and len(json.dumps(self.runtime, default=str)) <= MAX_ERROR
        return self.runtime if small else None


class ReportedInstance(ExternalMessage):
    """One instance as a CRM finds it."""

    state: Annotated[str, Field(min_length=1, max_length=100)]
    digest: CutText = ""

    @property
    def status(self) -> str:
        return NONE if self.state in GONE else self.state


class CrmConnect(ExternalMessage):
    """A CRM has started or found the network again: a new notify-id, and the state of all instances it has.

    With many of them it says so in pages: page 2 of 3 has the same notify-id, and other instances.
    """

    notify_id: int = Field(ge=1)
    version: Annotated[str, Field(min_length=1, max_length=31)] = "v1"
    instances: dict[str, ReportedInstance] = Field(default={}, max_length=MAX_INSTANCES)
    page: int = Field(1, ge=1, le=MAX_PAGES)
    of: int = Field(1, ge=1, le=MAX_PAGES)
    proof: Proof = ""

    def same_connection(self, other: CrmConnect) -> bool:
        """Are both pages of one message?"""
        return (self.notify_id, self.version, self.of) == (other.notify_id, other.version, other.of)


class CrmDisconnect(ExternalMessage):
    """A CRM says that it leaves, or its link has noticed that it is gone."""

    notify_id: int
    reason: CutText = ""
    proof: Proof = ""


class Reconnected(Model):
    """What the link tells an action whose CRM has connected again: the connection, and what it has of its objects."""

    address: CrmAddress
    reported: dict[str, ReportedInstance] = {}  # by path; one that is absent there is absent here


class ConnectionLost(Model):
    """What the link tells the cloudlet's action: a connection is gone."""

    notify_id: int
    version: str


class Letter(Model):
    """A message as it came, and the signal that it is. Without one it is a loss that a link noticed itself."""

    signal: str = ""
    message: dict[str, Any]


class HandIn(Model):
    """A letter to an action that may hear no more signals."""

    workflow: str
    letter: Letter


class IgnoredMessage(Model):
    """A message that changes nothing, to be kept in the history of the object that it was about."""

    path: str
    state: str
    reason: str
    actor: str = "CRM"


class IgnoredMessages(Model):
    """Messages that changed nothing, to be kept in the history."""

    messages: list[IgnoredMessage]
    at: datetime


CrmMessageT = TypeVar("CrmMessageT", bound=ExternalMessage)


def parse_message(kind: type[CrmMessageT], raw: object) -> CrmMessageT | str:
    """The message, or what is wrong with it."""
    if isinstance(raw, UnreadableMessage):
        return one_line(f"not understood: {raw}")
    try:
        said = kind.model_validate(raw)
        said._raw = dict(raw) if isinstance(raw, dict) else {}
        return said
    except ValidationError as error:
        return one_line(f"not understood: {describe_errors(error, 'message')}")


def digest(spec: Mapping[str, Any]) -> str:
    """A spec in sixteen characters, the same on both sides."""
    text = json.dumps(spec, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def pages(items: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Items in pages that are small enough to be sent, at least one."""
    found: list[dict[str, Any]] = [{}]
    size = 0
    for path, item in items.items():
        more = len(path) + len(json.dumps(item, default=str)) + 8
        if found[-1] and (size + more > PAGE_BYTES or len(found[-1]) >= MAX_INSTANCES):
            found.append({})
            size = 0
        found[-1][path] = item
        size += more
    return found


def join_errors(errors: Sequence[str]) -> str:
    """Several errors as one."""
    return one_line("; ".join(error for error in errors if error), MAX_ERROR)
