"""What the inventory tells the edge's workflows: about a connection, an answer, a policy's world."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from domain.edge.messages import CrmAddress, CrmConnect, CrmDisconnect, CrmResponse, Reconnected, ReportedInstance
from domain.edge.specs import AutoProvision, AutoScale, CrmPatience, PolicySpec
from domain.model import Model


class ConnectionStanding(StrEnum):
    """What became of a CRM's connection."""

    REFUSED = "refused"  # of an old notify-id, of the wrong version, or to a cloudlet that nobody made
    OWNED = "owned"  # an action holds the cloudlet: the next move is its own
    ACKED = "acked"  # the cloudlet is InitOk
    KEPT = "kept"  # known, but the cloudlet stays as it is


class SignedText(Model):
    """What a proof has to be about, and the proof."""

    statement: str
    proof: str = ""


class CrmFact(Model):
    """Something that a CRM said, or that was noticed; every page of it has to be proven."""

    cloudlet: str
    at: datetime
    signed: list[SignedText] = []
    kept: bool = True  # in the history, if it is ignored; of a flood not everything is


class ConnectFact(CrmFact):
    """A CRM says that it is there, and what it has: that of all pages together."""

    said: CrmConnect
    instances: dict[str, ReportedInstance] = {}


class AnswerFact(CrmFact):
    """A CRM says what became of its cloudlet itself; answers about instances go to their actions."""

    said: CrmResponse


class LostFact(CrmFact):
    """A connection is gone: we noticed it, or its CRM said goodbye."""

    said: CrmDisconnect
    noticed: bool = True  # by ourselves; else a CRM said goodbye, and has to prove who it is


class Connected(Model):
    """The answer to a connection, and who has to hear of it."""

    standing: ConnectionStanding
    why: str = ""
    current: int = 0  # the newest notify-id that is known
    address: CrmAddress | None = None
    running: list[str] = []  # actions below the cloudlet


class RejoinQuery(Model):
    """An action was told that its CRM has connected again: is it true?"""

    path: str  # the action's object
    notify_id: int


class Rejoined(Model):
    """What the inventory knows of that connection; nothing if there is none."""

    news: Reconnected | None = None


class CloudletAnswer(Model):
    """The answer to a CRM's message about the cloudlet itself."""

    owner: str = ""  # whose business it is
    refused: str = ""  # why nobody believes it
    ignored: bool = False  # it changed nothing
    everything: CrmAddress | None = None  # who is to be sent all data now


class InstanceTerms(Model):
    """What an instance's action was granted: whom to talk to, how patiently, and about what."""

    address: CrmAddress | None = None  # None: the CRM is not told
    patience: CrmPatience = CrmPatience()
    spec: dict[str, Any] = {}
    before: dict[str, Any] = {}
    tolerant: bool = False  # of the CRM's errors
    key: str = ""  # with one, answers have to be proven
    apps: dict[str, dict[str, Any]] = {}  # to be deleted first: their paths and specs


class CloudletTerms(Model):
    """What a cloudlet's action was granted."""

    address: CrmAddress | None = None  # the CRM that is connected
    next: CrmAddress | None = None  # another one, left by an upgrade that did not end well
    patience: CrmPatience = CrmPatience()
    spec: dict[str, Any] = {}


class ExpectedInstance(Model):
    """One instance that should be there."""

    path: str
    spec: dict[str, Any]


class ExpectedPage(Model):
    """What should be on a cloudlet: one page."""

    items: list[ExpectedInstance]
    more: bool = False


class Refuge(Model):
    """An app, and where it can go."""

    path: str
    to: str = ""  # empty: nowhere
    spec: dict[str, Any] = {}


class Refuges(Model):
    """The apps of a cloudlet that goes into maintenance, each with where it can go."""

    apps: list[Refuge]


class KeptPolicy(Model):
    """A policy as it is in the inventory."""

    spec: PolicySpec | None = None  # None: there is none that is to be followed
    changing: bool = False  # an action on it has not ended


class PolicyQuestion(Model):
    """A policy asks how its world is: which policy, and what it is about."""

    policy: str  # its path
    auto_provision: AutoProvision | None = None
    auto_scale: AutoScale | None = None
