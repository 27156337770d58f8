"""Messages between the edge's workflows and the inventory: what a CRM reported, and what follows from it."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from domain.edge.messages import CrmAddress, CrmConnect, CrmDisconnect, CrmResponse, Reconnected, ReportedInstance
from domain.edge.specs import AutoProvision, AutoScale, CrmPatience, PolicySpec
from domain.model import FrozenModel


class ConnectionDecision(StrEnum):
    """The inventory's decision about a CRM's connection."""

    REFUSED = "refused"  # an old notify-id, the wrong version, or an unknown cloudlet
    OWNED = "owned"  # an action on the cloudlet is under way, and decides
    ACKED = "acked"  # the cloudlet is InitOk
    KEPT = "kept"  # recorded, but the cloudlet's status does not change


class SignedStatement(FrozenModel):
    """A statement of a CRM and its signature."""

    statement: str
    proof: str = ""


class LinkReport(FrozenModel):
    """Something that a CRM said or that its link noticed. Every page of what it said must be signed."""

    cloudlet: str
    at: datetime
    signed: list[SignedStatement] = []
    kept: bool = True  # write a history line even if it is ignored; in a flood not all are written
    key: str = ""  # the same when the link reports it again: an ignored line is written once


class ConnectReport(LinkReport):
    """A CRM has connected, and reports its instances: those of all pages together."""

    said: CrmConnect
    instances: dict[str, ReportedInstance] = {}


class AnswerReport(LinkReport):
    """A CRM's answer about its cloudlet. Answers about instances go to their own actions."""

    said: CrmResponse


class DisconnectReport(LinkReport):
    """A connection is lost: its link noticed it, or the CRM disconnected."""

    said: CrmDisconnect
    noticed: bool = True  # by its link; otherwise the CRM disconnected, and must prove who it is


class ConnectionReply(FrozenModel):
    """The answer to a connection, and the actions that must hear of it."""

    standing: ConnectionDecision
    why: str = ""
    current: int = 0  # the newest notify-id
    address: CrmAddress | None = None
    running: list[str] = []  # workflows of the actions below the cloudlet


class ReconnectionQuery(FrozenModel):
    """An action was told that its CRM has reconnected, and asks the inventory whether that is true."""

    path: str  # the action's object
    notify_id: int
    others: list[int] = []  # of a flood: any of them may be true


class StoredReconnection(FrozenModel):
    """The stored connection that a ReconnectionQuery asks for; None if there is none."""

    news: Reconnected | None = None


class AnswerResult(FrozenModel):
    """The inventory's decision on a CRM's message about its cloudlet."""

    owner: str = ""  # the workflow of the action that must handle it
    refused: str = ""  # why its proof was refused
    ignored: bool = False  # it changed nothing
    everything: CrmAddress | None = None  # the CRM that must now be sent all data


class InstanceGrantDetails(FrozenModel):
    """The details of an instance action's grant: which CRM to ask, how long to wait, and the specs."""

    address: CrmAddress | None = None  # None: the CRM is not asked
    patience: CrmPatience = CrmPatience()
    spec: dict[str, Any] = {}
    before: dict[str, Any] = {}
    tolerant: bool = False  # succeed despite the CRM's errors
    key: str = ""  # the CRM's public key; if set, answers must be signed
    apps: dict[str, dict[str, Any]] = {}  # to be deleted first: their paths and specs


class CloudletGrantDetails(FrozenModel):
    """The details of a cloudlet action's grant: the connected CRMs, how long to wait, the spec."""

    address: CrmAddress | None = None  # the CRM that is connected
    next: CrmAddress | None = None  # a second CRM, left by a failed upgrade
    patience: CrmPatience = CrmPatience()
    spec: dict[str, Any] = {}


class ExpectedInstance(FrozenModel):
    """One instance that should exist on a cloudlet."""

    path: str
    spec: dict[str, Any]


class ExpectedInstancesPage(FrozenModel):
    """A page of the instances that should exist on a cloudlet. `at`: the database's clock, in microseconds."""

    items: list[ExpectedInstance]
    more: bool = False
    at: int = 0


class PlannedFailover(FrozenModel):
    """An app, and the cluster on another cloudlet that it can move to."""

    path: str
    to: str = ""  # empty: nowhere
    spec: dict[str, Any] = {}


class FailoverPlan(FrozenModel):
    """The apps of a cloudlet that goes into maintenance, each with where it can move."""

    apps: list[PlannedFailover]


class StoredPolicy(FrozenModel):
    """A stored policy: its spec if it is active, and whether an action is changing it."""

    spec: PolicySpec | None = None  # None: no active policy
    changing: bool = False  # an action on it has not ended
    principal: str = ""  # who made it


class PolicyFactsQuery(FrozenModel):
    """A policy asks for the PolicyFacts that it decides on."""

    policy: str  # its path
    auto_provision: AutoProvision | None = None
    auto_scale: AutoScale | None = None
