"""Messages between the controller and a CRM, and the names that cross the wire between them.

A CRM's messages are untrusted: they are parsed leniently, cut to size, and interpreted elsewhere.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, ValidationError, model_validator

from domain.edge.proofs import text_to_sign
from domain.edge.tables import GONE_STATES
from domain.errors import format_one_line
from domain.model import FrozenModel, SignedMessage
from domain.statetable import NONE
from domain.validation import ObjectPath, describe_validation_errors
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
CRM_POLL = "crm_poll"  # not a signal: what a CRM signs when it asks a gateway for orders
DEMAND_SIGNAL = "demand"
POLICY_CHANGED = "policy_changed"
RECONNECTED = "reconnected"
CONNECTION_LOST = "connection_lost"

# The update by which the link reaches an action that has reached Temporal's limit of signals.
HEAR_UPDATE = "hear"
SIGNAL_LIMIT_ERROR = "limit for signal"  # part of Temporal's error for a signal to a run that has reached its limit

# Companions of an object.
LINK_ROLE = "link"
LOOP_ROLE = "loop"

# Activities that are called by name: ours, and those that an agent runs on its cloudlet's queue.
CRM_LATE = "crm_late"
CRM_REQUESTS = "crm_requests"
CRM_SESSION = "crm_session"

MAX_ERRORS = 20
MAX_ERROR_LENGTH = 4_000  # characters of all errors together that are kept
MAX_INSTANCES = 5_000  # on one page of a connection
MAX_PAGES = 100
PAGE_BYTES = 400_000  # of one page: Temporal takes 2 MB at once


def crm_queue(cloudlet: str, version: str) -> str:
    """Returns the task queue from which a cloudlet's CRM of this version takes its requests."""
    return f"crm-{cloudlet}-{version}"


class CrmVerb(StrEnum):
    """The requests that a CRM understands."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    REPORT = "report"  # report your progress
    UPGRADE = "upgrade"  # start the CRM of another version
    RECONNECT = "reconnect"  # connect again, with a new notify-id
    MAINTAIN = "maintain"
    OPERATE = "operate"  # end maintenance
    SHUTDOWN = "shutdown"  # the cloudlet is deleted
    ALL_DATA = "all-data"  # every instance that should exist
    ACK = "ack"  # your connection is accepted; only for CRMs without a session
    PING = "ping"  # are you alive? only for CRMs without a session; any successful answer will do


class CrmRequest(FrozenModel):
    """One order to a CRM. `epoch` and `attempt` tell a repeated order from a new one."""

    path: str
    verb: CrmVerb
    notify_id: int
    version: str
    epoch: int = 0
    attempt: int = 1
    reply_to: str = ""  # the workflow that awaits the answer; empty: the one of `path`
    spec: dict[str, Any] = {}
    undo: bool = False
    proof: str = ""  # the controller's signature, if its workers have a key

    @property
    def text_to_sign(self) -> str:
        """Returns what the controller signs: all of it, so that it is good for this object, action and connection."""
        return text_to_sign(CRM_REQUESTS, self.path, self.model_dump(mode="json"))

    @property
    def request_key(self) -> str:
        return f"{self.path}/{self.verb}/{self.epoch}/{self.attempt}"


class CrmRequests(FrozenModel):
    """A batch of requests to one CRM, as one message."""

    requests: list[CrmRequest]


class CrmPoll(FrozenModel):
    """A CRM asks a gateway for its orders. `at` is its clock in microseconds: a poll is good once, and for a minute."""

    version: Annotated[str, Field(min_length=1, max_length=31, examples=["v1"])]
    notify_id: int = Field(ge=0, le=2**53, examples=[1])
    received: int = Field(0, ge=0, le=2**53)  # the number of the last batch that it has
    at: int = Field(ge=0, le=2**53, examples=[1_790_000_000_000_000])
    proof: Annotated[str, Field(max_length=200)] = ""


class CrmOrders(FrozenModel):
    """A gateway's answer: orders, their number, and the connection whose session is open."""

    batch: int
    requests: list[CrmRequest]
    session: int


class CrmAddress(FrozenModel):
    """A connected CRM: its cloudlet, version, notify-id and transport."""

    cloudlet: str
    version: str
    notify_id: int
    transport: str = "queue"
    url: str = ""
    probe: float = 30  # seconds between pings of a CRM without a session

    def connection_fields(self) -> dict[str, Any]:
        """Returns the connection's notify-id and version, as requests and records contain them."""
        return {"notify_id": self.notify_id, "version": self.version}


class ActionReference(FrozenModel):
    """The action for which something is sent. Epoch 0: no action, so no right to order needs to be proven."""

    path: str = ""
    epoch: int = 0


class SendCrmRequests(ActionReference):
    """The input of the activity that sends requests to a CRM."""

    to: CrmAddress
    requests: list[CrmRequest]


class SendAllData(ActionReference):
    """The input of the activity that sends a CRM the specs of all instances that its cloudlet should have."""

    to: CrmAddress


def _truncate_list(value: Any) -> Any:
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list):
        return value
    return [format_one_line(text, MAX_ERROR_LENGTH) if isinstance(text, str) else text for text in value[:MAX_ERRORS]]


TruncatedText = Annotated[
    str, BeforeValidator(lambda value: format_one_line(value, 500) if isinstance(value, str) else value)
]
ProofText = Annotated[str, Field(max_length=200)]


class ExternalMessage(BaseModel):
    """Base of a CRM's messages. Unknown fields are dropped: a newer CRM may send more."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    _raw: dict[str, Any] = PrivateAttr(default={})  # as it was received: what a proof signs

    @property
    def fields_as_received(self) -> dict[str, Any]:
        return self._raw

    @model_validator(mode="before")
    @classmethod
    def _drop_null_fields(cls, raw: Any) -> Any:
        """Drops null fields: Temporal's HTTP API turns an empty list into null."""
        return {key: value for key, value in raw.items() if value is not None} if isinstance(raw, dict) else raw


class CrmProgress(ExternalMessage):
    """A CRM's progress: task `task` of `of`, now at `step`."""

    task: int = Field(0, ge=0, le=1_000_000)
    of: int = Field(0, ge=0, le=1_000_000)
    step: TruncatedText = ""
    message: TruncatedText = ""

    def describe(self) -> str:
        """Returns the progress as a sentence."""
        words = " ".join(word for word in (self.step, self.message) if word)
        return f"task {self.task} of {self.of}: {words}" if self.of else words


class CrmResponse(ExternalMessage):
    """A CRM's answer: the state that it brought the object to, or the errors."""

    state: Annotated[str, Field(min_length=1, max_length=100)]
    notify_id: int
    errors: Annotated[list[str], BeforeValidator(_truncate_list)] = []
    runtime: dict[str, Any] | None = None
    progress: CrmProgress | None = None
    path: ObjectPath | None = None  # if it is not the receiving workflow's own object
    version: TruncatedText = ""
    epoch: int = 0  # of the request that it answers; 0: unsolicited
    proof: ProofText = ""

    @property
    def status(self) -> str:
        """The CRM's state word as a status of our state table."""
        return NONE if self.state in GONE_STATES else self.state

    def joined_errors(self) -> str:
        """Returns all errors, joined and cut."""
        return format_one_line("; ".join(self.errors), MAX_ERROR_LENGTH)

    def storable_runtime(self) -> dict[str, Any] | None:
        """Returns the runtime, if it is small enough to be stored."""
        small = self.runtime is not None and len(json.dumps(self.runtime, default=str)) <= MAX_ERROR_LENGTH
        return self.runtime if small else None


class ReportedInstance(ExternalMessage):
    """One instance as its CRM reports it."""

    state: Annotated[str, Field(min_length=1, max_length=100)]
    digest: TruncatedText = ""

    @property
    def status(self) -> str:
        return NONE if self.state in GONE_STATES else self.state


class CrmConnect(ExternalMessage):
    """A CRM has started or reconnected: its new notify-id, and the state of all its instances.

    Many instances come in pages: all pages have the same notify-id, and different instances.
    """

    notify_id: int = Field(ge=1)
    version: Annotated[str, Field(min_length=1, max_length=31)] = "v1"
    backend: TruncatedText = ""  # what its apps run on; `simulated`: nothing is real
    instances: dict[str, ReportedInstance] = Field(default={}, max_length=MAX_INSTANCES)
    page: int = Field(1, ge=1, le=MAX_PAGES)
    of: int = Field(1, ge=1, le=MAX_PAGES)
    proof: ProofText = ""

    def is_same_connection(self, other: CrmConnect) -> bool:
        """Tells whether both pages belong to the same connect message."""
        return (self.notify_id, self.version, self.of) == (other.notify_id, other.version, other.of)


class CrmDisconnect(ExternalMessage):
    """A CRM disconnects, or its link has noticed that it is gone."""

    notify_id: int
    reason: TruncatedText = ""
    proof: ProofText = ""


class Reconnected(FrozenModel):
    """The link's signal to an action whose CRM has reconnected: the connection, and the reported instances."""

    address: CrmAddress
    reported: dict[str, ReportedInstance] = {}  # by path; one that the CRM does not have is not listed


class ConnectionLost(FrozenModel):
    """The link's signal to the cloudlet's action about a lost connection."""

    notify_id: int
    version: str


class ReceivedSignal(FrozenModel):
    """A message as it was received, with its signal name; without one, the link noticed a lost connection."""

    signal: str = ""
    message: dict[str, Any]


class DeliverSignal(FrozenModel):
    """A message for an action that has reached Temporal's limit of signals."""

    workflow: str
    letter: ReceivedSignal


class IgnoredMessage(FrozenModel):
    """One ignored CRM message, to be recorded in the history of its object."""

    path: str
    state: str
    reason: str
    actor: str = "CRM"
    key: str = ""  # the same when a run records it again


class IgnoredMessages(SignedMessage):
    """Ignored CRM messages to be recorded in the histories of their objects."""

    messages: list[IgnoredMessage]
    at: datetime

    @property
    def path_to_authorize(self) -> str:
        return self.messages[0].path if len(self.messages) == 1 else ""


CrmMessageT = TypeVar("CrmMessageT", bound=ExternalMessage)


def parse_message(kind: type[CrmMessageT], raw: object) -> CrmMessageT | str:
    """Returns the parsed message, or why it could not be parsed."""
    if isinstance(raw, UnreadableMessage):
        return format_one_line(f"not understood: {raw}")
    try:
        message = kind.model_validate(raw)
        message._raw = dict(raw) if isinstance(raw, dict) else {}
        return message
    except ValidationError as error:
        return format_one_line(f"not understood: {describe_validation_errors(error, 'message')}")


def instance_spec_digest(spec: Mapping[str, Any]) -> str:
    """Returns a short hash of a spec, computed alike by the controller and the CRM."""
    text = json.dumps(spec, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def split_into_pages(items: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Splits items into pages that fit into one message; at least one page."""
    batches: list[dict[str, Any]] = [{}]
    size = 0
    for path, item in items.items():
        more = len(path) + len(json.dumps(item, default=str)) + 8
        if batches[-1] and (size + more > PAGE_BYTES or len(batches[-1]) >= MAX_INSTANCES):
            batches.append({})
            size = 0
        batches[-1][path] = item
        size += more
    return batches


def join_errors(errors: Sequence[str]) -> str:
    """Joins errors into one line."""
    return format_one_line("; ".join(error for error in errors if error), MAX_ERROR_LENGTH)
