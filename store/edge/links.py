"""Records what CRMs report: connects, answers and lost connections. None of these is an action; they come at any time.

A report moves the cloudlet by the rows of the actors CRM and Controller. While an action holds the cloudlet, only the
connection itself is recorded, and the action decides the rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa

from domain.edge.facts import (
    AnswerFact,
    CloudletAnswer,
    Connected,
    ConnectFact,
    ConnectionStanding,
    CrmFact,
    LostFact,
    Rejoined,
)
from domain.edge.interpret import CrmInterpreter, Effect, compare
from domain.edge.messages import CrmConnect, CrmResponse, IgnoredMessage, Reconnected, ReportedInstance
from domain.edge.ports import CheckProof
from domain.edge.tables import CLOUDLET, CrmActor, S
from domain.errors import Refused, one_line
from domain.locks import Mode, locks_for
from domain.paths import check_path
from domain.statetable import NONE, Actor, LineEffect, Ruling
from store.edge.hooks import address_of, cloudlet_of, remaining_crms
from store.history import history_line, merge_info
from store.queries import below
from store.rows import find_object, lock_object, read_all
from store.schema import locks, objects
from store.status import ONE, record
from store.turns import serialise

MAX_ORPHANS = 100


class InstanceRow(NamedTuple):
    """What is on a cloudlet, to be compared with what its CRM has."""

    path: str
    status: str
    info: dict[str, Any]
    epoch: int


_BELOW = sa.select(*(objects.c[name] for name in InstanceRow._fields)).with_for_update()


class _CloudletWriter:
    """Reads and locks a cloudlet with its lock holders, and writes its changes, within one transaction."""

    def __init__(self, connection: sa.Connection, fact: CrmFact) -> None:
        path = fact.cloudlet
        serialise(connection, locks_for([path]))  # no action below can begin meanwhile
        self.connection, self.path, self.at, self.kept = connection, path, fact.at, fact.kept
        self.found = lock_object(connection, path)  # before its locks are read: finish releases them last
        holders = sa.select(locks.c.owner).where(locks.c.mode == Mode.X.value, below(locks.c.path, path)).distinct()
        owners = list(connection.execute(holders.order_by(locks.c.owner)).scalars())
        self.owner = path if path in owners else ""
        self.running = [owner for owner in owners if owner != path]

    @property
    def info(self) -> dict[str, Any]:
        return dict(self.found.info) if self.found else {}

    @property
    def status(self) -> str:
        return str(self.found.status) if self.found else NONE

    @property
    def key(self) -> str:
        """The key against which a CRM's proof is checked; empty if none is needed."""
        return str(self.found.spec.get("key", "")) if self.found else ""

    def crm(self, role: str = "crm") -> dict[str, Any]:
        return dict(self.info.get(role) or {})

    def current(self) -> int:
        """Returns the highest notify-id of the cloudlet's connections."""
        return max(int(self.crm(role).get("notify_id", 0)) for role in ("crm", "next"))

    def tell(
        self, actor: str, action: str, source: str, to: str, message: str = "", effect: LineEffect = LineEffect.APPLIED
    ) -> None:
        epoch = self.found.epoch if self.found else 0
        told = history_line(self.path, self.at, actor, action, source, to, epoch, message, effect)
        record(self.connection, [told])

    def ignore(self, action: str, to: str, why: str) -> None:
        """Records an ignored message in the history, unless too many were recorded already."""
        if self.kept:
            self.tell(CrmActor.CRM, action, self.status, to, f"ignored: {why}", LineEffect.IGNORED)

    def write(self, info: dict[str, Any], status: str | None = None, error: str | None = None) -> None:
        change: dict[str, Any] = {"info": merge_info(self.info, info), "changed_at": self.at}
        if status:
            change["status"] = status
        if error is not None:
            change["error"] = error
        ONE.change(self.connection, {"name": self.path}, change)
        self.found = find_object(self.connection, self.path)

    def step(self, to: str, actor: str) -> bool:
        return CLOUDLET.judge_step(self.status, to, actor).ruling is not Ruling.REFUSED


def always_believed(_key: str) -> str:
    """Accepts every message: the proof check for facts that need no proof."""
    return ""


def connected(connection: sa.Connection, fact: ConnectFact, doubt: CheckProof = always_believed) -> Connected:
    """Records a CRM's connect and acknowledges it. Refuses an old notify-id, an unexpected version and a bad proof."""
    site, said = _CloudletWriter(connection, fact), fact.said
    why = doubt(site.key)
    if not why and (role := _known(site, said)):
        return _connection(site, role)  # recorded by a worker that died before it replied
    if why := why or _unacceptable(site, said):
        site.ignore("startup", S.INIT, why)
        return Connected(standing=ConnectionStanding.REFUSED, why=why, current=site.current())
    role = _role(site, said)
    known = {"notify_id": said.notify_id, "version": said.version, "connected": True, "since": fact.at.isoformat()}
    if site.key:
        known["reported"] = _of_running(site, fact.instances)
    site.write({role: known, **({"next": None} if role == "crm" and _is_next(site, said) else {})})
    if not site.owner:
        _acknowledge(site)
    if role == "crm":
        _reconcile(site, fact.instances)
    return _connection(site, role)


def _connection(site: _CloudletWriter, role: str) -> Connected:
    """Builds the reply to a CRM from the recorded connection of this role."""
    assert site.found
    address = address_of(site.found, role)
    at_rest = ConnectionStanding.ACKED if site.status == S.INIT_OK else ConnectionStanding.KEPT
    return Connected(
        standing=ConnectionStanding.OWNED if site.owner else at_rest,
        address=address,
        running=site.running if role == "crm" else [],
        current=address.notify_id if address else 0,
    )


def _known(site: _CloudletWriter, said: CrmConnect) -> str:
    """Returns the role in which this very connection is already open, or an empty string."""
    for role in ("crm", "next"):
        crm = site.crm(role)
        if crm.get("connected") and (crm["notify_id"], crm["version"]) == (said.notify_id, said.version):
            return role
    return ""


def _of_running(site: _CloudletWriter, there: dict[str, ReportedInstance]) -> dict[str, Any]:
    """Returns the CRM's instances that running actions work on; these read them here, as a signal can be forged."""
    ours = [(path, seen) for path, seen in there.items() if any(_covers(owner, path) for owner in site.running)]
    return {path: seen.model_dump() for path, seen in ours}


def rejoined(connection: sa.Connection, path: str, notify_id: int) -> Rejoined:
    """Returns the connection with this notify-id and what its CRM reported at or below a path, if it is open."""
    found = find_object(connection, cloudlet_of(path))
    for role in ("crm", "next"):
        address = address_of(found, role) if found else None
        if found and address and address.notify_id == notify_id:
            there = (found.info[role].get("reported") or {}).items()
            return Rejoined(
                news=Reconnected(
                    address=address,
                    reported={
                        each: ReportedInstance.model_validate(seen) for each, seen in there if _covers(path, each)
                    },
                )
            )
    return Rejoined()


def _covers(owner: str, path: str) -> bool:
    return f"{path}:".startswith(f"{owner}:")


def _unacceptable(site: _CloudletWriter, said: CrmConnect) -> str:
    if site.found is None:
        return f"there is no such Cloudlet: {site.path}"
    if said.notify_id <= site.current():
        return f"notify-id {said.notify_id} is not newer than {site.current()}"
    doing = site.found.target_action if site.owner else ""
    expected = site.crm().get("version") or site.found.spec.get("version", "v1")
    if doing == "upgrade" or doing == "repair" or said.version == expected or _is_next(site, said):
        return ""
    return f"version {said.version} connected, but the cloudlet runs {expected}: upgrade it instead"


def _is_next(site: _CloudletWriter, said: CrmConnect) -> bool:
    """Tells whether this CRM is the new version of an upgrade that was cut off."""
    return said.version == site.crm("next").get("version")


def _role(site: _CloudletWriter, said: CrmConnect) -> str:
    """Returns `crm` for the CRM that serves, or `next` for the one that takes over at the end of an upgrade."""
    assert site.found
    upgrading = site.owner and site.found.target_action == "upgrade"
    beside = not site.owner and _is_next(site, said) and site.crm().get("connected")
    return "next" if (upgrading or beside) and said.version != site.crm().get("version") else "crm"


def _acknowledge(site: _CloudletWriter) -> None:
    if site.status == S.UPDATE_ERROR:
        site.tell(
            CrmActor.V1, "resend", S.UPDATE_ERROR, S.UPDATE_ERROR, "connected again; the state stays until repair"
        )
        return
    if not site.step(S.INIT, CrmActor.CRM):
        if site.step(site.status, CrmActor.CRM):
            site.tell(CrmActor.CRM, "startup", site.status, site.status)
        return
    site.tell(CrmActor.CRM, "startup", site.status, S.INIT)
    site.tell(Actor.CONTROLLER, "ack", S.INIT, S.INIT_OK)
    site.write({}, status=S.INIT_OK, error="")


def _reconcile(site: _CloudletWriter, there: dict[str, ReportedInstance]) -> None:
    """Compares instances at rest with the CRM's report: marks missing ones, records unknown ones as orphans."""
    rows = {
        row.path: row
        for row in read_all(
            InstanceRow,
            site.connection.execute(_BELOW.where(below(objects.c.path, site.path)).order_by(objects.c.path)),
        )
        if row.path != site.path
    }
    known = {path: (row.status, bool(row.info.get("missing"))) for path, row in rows.items()}
    busy = frozenset(path for path in {*rows, *there} if any(_covers(owner, path) for owner in site.running))
    ours = {path: reported for path, reported in there.items() if path.startswith(f"{site.path}:") and _sound(path)}
    found = compare(known, busy, ours)
    news = [path for path in found.missing if not known[path][1]]
    _mark(site, rows, news, True, "ignored: the CRM does not have it: missing; recreate it or delete it")
    _mark(site, rows, found.found_again, None, "the CRM has it again")
    if found.orphans != site.info.get("orphans", []):
        site.write({"orphans": found.orphans[:MAX_ORPHANS] or None})
    for path in found.orphans[:MAX_ORPHANS]:
        told = f"ignored: orphan on the cloudlet, unknown to us: {path}"
        site.tell(CrmActor.CRM, "startup", site.status, site.status, told, LineEffect.IGNORED)


def _mark(
    site: _CloudletWriter, rows: dict[str, InstanceRow], paths: Iterable[str], missing: bool | None, message: str
) -> None:
    effect = LineEffect.IGNORED if missing else LineEffect.APPLIED
    for path in paths:
        row = rows[path]
        same = (row.status, row.status, row.epoch, message, effect)
        change = {"info": merge_info(row.info, {"missing": missing}), "changed_at": site.at}
        told = history_line(path, site.at, CrmActor.CRM, "startup", *same)
        ONE.change(site.connection, {"name": path}, change, [told])


def answered(connection: sa.Connection, fact: AnswerFact, doubt: CheckProof = always_believed) -> CloudletAnswer:
    """Records a CRM's message about the cloudlet itself while no action holds it: gathered, or gathering failed."""
    site, said = _CloudletWriter(connection, fact), fact.said
    if site.owner:
        return CloudletAnswer(owner=site.owner)
    if why := doubt(site.key):
        return _ignore(site, said, why).model_copy(update={"refused": why})
    if said.status == S.READY and said.notify_id == site.crm("next").get("notify_id"):
        site.write({"crm": site.crm("next"), "next": None})  # it has replaced the one before
    if site.found is None or said.notify_id != site.crm().get("notify_id"):
        return _ignore(site, said, f"notify-id {said.notify_id} is not the current one")
    if said.status == S.READY and site.status in (S.UPDATE_ERROR, S.UNDER_MAINTENANCE):
        actor = CrmActor.V1 if site.status == S.UPDATE_ERROR else CrmActor.CRM
        site.tell(actor, "resend", site.status, site.status, "it serves on; the state stays")
        return CloudletAnswer(everything=address_of(site.found))
    if said.status == S.OFFLINE and said.errors and site.status == S.INIT_OK:
        site.write({}, error=said.reason())
        site.tell(CrmActor.CRM, "gathered", site.status, site.status, f"gathering failed: {said.reason()}")
        return CloudletAnswer()
    heard = CrmInterpreter(CLOUDLET, site.status, said.notify_id).interpret(said)
    if heard.effect is not Effect.ENDS or heard.to != S.READY:
        return _ignore(site, said, heard.why or "not while no action runs")
    site.tell(CrmActor.CRM, "gathered", site.status, S.READY)
    site.write({}, status=S.READY, error="")
    return CloudletAnswer(everything=address_of(site.found))


def _ignore(site: _CloudletWriter, said: CrmResponse, why: str) -> CloudletAnswer:
    site.ignore("response", said.state, why)
    return CloudletAnswer(ignored=True)


def lost(connection: sa.Connection, fact: LostFact, doubt: CheckProof = always_believed) -> CloudletAnswer:
    """Records a lost connection. The cloudlet goes Offline unless another CRM is connected or an action holds it."""
    site, said = _CloudletWriter(connection, fact), fact.said
    if why := doubt(site.key):
        site.ignore("lost", S.OFFLINE, why)
        return CloudletAnswer(refused=why, ignored=True)
    role = next((each for each in ("crm", "next") if site.crm(each).get("notify_id") == said.notify_id), "")
    if site.found is None or not role or not site.crm(role).get("connected"):
        return CloudletAnswer()
    site.write({role: {**site.crm(role), "connected": False}})
    if not site.owner and site.crm("next"):
        crm, other = remaining_crms(site.crm(), site.crm("next"))
        site.write({"crm": crm, "next": other})
    if not site.owner and site.step(S.OFFLINE, Actor.CONTROLLER):
        site.tell(Actor.CONTROLLER, "lost", site.status, S.OFFLINE, said.reason or "its CRM is gone")
        site.write({}, status=S.OFFLINE)
    return CloudletAnswer(owner=site.owner)


def ignore(connection: sa.Connection, messages: Iterable[IgnoredMessage], at: datetime) -> int:
    """Records ignored messages in the histories of their objects."""
    lines = []
    for message in messages:
        found = find_object(connection, message.path)
        status, epoch = (found.status, found.epoch) if found else (NONE, 0)
        change = (status, one_line(message.state, 100), epoch, f"ignored: {message.reason}", LineEffect.IGNORED)
        lines.append(history_line(message.path, at, message.actor, "response", *change))
    record(connection, lines)
    return len(lines)


def _sound(path: str) -> bool:
    try:
        return cloudlet_of(check_path(path)) != path
    except (Refused, IndexError):
        return False
