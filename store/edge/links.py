"""Records what CRMs report: connects, answers and lost connections. None of these is an action; they come at any time.

A report moves the cloudlet as the state table's rows for the actors CRM and Controller allow. While an action holds the
cloudlet, only the
connection itself is recorded, and the action decides the rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from itertools import starmap
from typing import Any, NamedTuple

import sqlalchemy as sa

from domain.edge.interpretation import CrmInterpreter, MessageEffect, compare_instances
from domain.edge.messages import CrmConnect, CrmResponse, IgnoredMessage, Reconnected, ReportedInstance
from domain.edge.policies import cloudlet_of
from domain.edge.ports import CheckProof
from domain.edge.reports import (
    AnswerReport,
    AnswerResult,
    ConnectionDecision,
    ConnectionReply,
    ConnectReport,
    DisconnectReport,
    LinkReport,
    StoredReconnection,
)
from domain.edge.tables import CLOUDLET, CrmActor, S
from domain.errors import Refused, format_one_line
from domain.locks import LockMode, locks_needed_for
from domain.paths import check_path, is_at_or_below
from domain.statetable import NONE, Actor, LineEffect, Ruling
from store.advisory import acquire_advisory_locks
from store.edge.addresses import crm_address_of
from store.edge.hooks import remaining_crms
from store.history import history_line, merge_info
from store.once import mark_done
from store.queries import at_or_below_condition
from store.rows import find_object, lock_object
from store.schema import locks, objects
from store.status import OBJECT_BY_PATH, record_lines

MAX_ORPHANS = 100


class RecordedInstance(NamedTuple):
    """What is on a cloudlet, to be compared with what its CRM has."""

    path: str
    status: str
    info: dict[str, Any]
    epoch: int


_LOCK_INSTANCES = sa.select(*(objects.c[name] for name in RecordedInstance._fields)).with_for_update()


class _CloudletWriter:
    """Reads and locks a cloudlet with its lock holders, and writes its changes, within one transaction."""

    def __init__(self, connection: sa.Connection, fact: LinkReport) -> None:
        path = fact.cloudlet
        acquire_advisory_locks(connection, locks_needed_for([path]))  # no action below can begin meanwhile
        self.connection, self.path, self.at, self.kept = connection, path, fact.at, fact.kept
        # A report that comes again, as its worker died after the commit, records no ignored line again.
        self.is_new = not fact.key or mark_done(connection, f"ignored {fact.key}")
        self.object_row = lock_object(connection, path)  # before its locks are read: finish releases them last
        holders = (
            sa.select(locks.c.owner)
            .where(locks.c.mode == LockMode.X.value, at_or_below_condition(locks.c.path, path))
            .distinct()
        )
        owners = list(connection.execute(holders.order_by(locks.c.owner)).scalars())
        self.owner = path if path in owners else ""
        self.running = [owner for owner in owners if owner != path]

    @property
    def info(self) -> dict[str, Any]:
        return dict(self.object_row.info) if self.object_row else {}

    @property
    def status(self) -> str:
        return str(self.object_row.status) if self.object_row else NONE

    @property
    def public_key(self) -> str:
        """The key against which a CRM's proof is checked; empty if none is needed."""
        return str(self.object_row.spec.get("key", "")) if self.object_row else ""

    def stored_connection(self, role: str = "crm") -> dict[str, Any]:
        return dict(self.info.get(role) or {})

    def newest_notify_id(self) -> int:
        """Returns the highest notify-id of the cloudlet's connections."""
        return max(int(self.stored_connection(role).get("notify_id", 0)) for role in ("crm", "next"))

    def record_line(
        self, actor: str, action: str, source: str, to: str, message: str = "", effect: LineEffect = LineEffect.APPLIED
    ) -> None:
        if effect is LineEffect.IGNORED and not self.is_new:
            return
        epoch = self.object_row.epoch if self.object_row else 0
        told = history_line(self.path, self.at, actor, action, source, to, epoch, message, effect)
        record_lines(self.connection, [told])

    def record_ignored(self, action: str, to: str, why: str) -> None:
        """Records an ignored message in the history, unless too many were recorded already."""
        if self.kept:
            self.record_line(CrmActor.CRM, action, self.status, to, f"ignored: {why}", LineEffect.IGNORED)

    def write_object(self, info: dict[str, Any], status: str | None = None, error: str | None = None) -> None:
        change: dict[str, Any] = {"info": merge_info(self.info, info), "changed_at": self.at}
        if status:
            change["status"] = status
        if error is not None:
            change["error"] = error
        OBJECT_BY_PATH.change_objects(self.connection, {"name": self.path}, change)
        self.object_row = find_object(self.connection, self.path)

    def move_to(self, to: str, actor: str) -> bool:
        return CLOUDLET.judge_step(self.status, to, actor).ruling is not Ruling.REFUSED


def accept_connection(connection: sa.Connection, fact: ConnectReport, doubt: CheckProof) -> ConnectionReply:
    """Records a CRM's connect and acknowledges it. Refuses an old notify-id, an unexpected version and a bad proof."""
    site, said = _CloudletWriter(connection, fact), fact.said
    why = doubt(site.public_key)
    if not why and (role := _role_of_open_connection(site, said)):
        return _connection_reply(site, role)  # recorded by a worker that died before it replied
    if why := why or _why_connection_refused(site, said):
        site.record_ignored("startup", S.INIT, why)
        return ConnectionReply(standing=ConnectionDecision.REFUSED, why=why, current=site.newest_notify_id())
    role = _role_of_new_connection(site, said)
    known = {"notify_id": said.notify_id, "version": said.version, "connected": True, "since": fact.at.isoformat()}
    if said.backend:
        known["backend"] = said.backend
    if site.public_key:
        known["reported"] = _reported_instances_under_way(site, fact.instances)
    site.write_object({role: known, **({"next": None} if role == "crm" and _is_upgrade_successor(site, said) else {})})
    if not site.owner:
        _record_startup(site)
    if role == "crm":
        _reconcile_instances(site, fact.instances)
    return _connection_reply(site, role)


def _connection_reply(site: _CloudletWriter, role: str) -> ConnectionReply:
    """Builds the reply to a CRM from the recorded connection of this role."""
    assert site.object_row
    address = crm_address_of(site.object_row, role)
    at_rest = ConnectionDecision.ACKED if site.status == S.INIT_OK else ConnectionDecision.KEPT
    return ConnectionReply(
        standing=ConnectionDecision.OWNED if site.owner else at_rest,
        address=address,
        running=site.running if role == "crm" else [],
        current=address.notify_id if address else 0,
    )


def _role_of_open_connection(site: _CloudletWriter, said: CrmConnect) -> str:
    """Returns the role in which this very connection is already open, or an empty string."""
    for role in ("crm", "next"):
        crm = site.stored_connection(role)
        if crm.get("connected") and (crm["notify_id"], crm["version"]) == (said.notify_id, said.version):
            return role
    return ""


def _reported_instances_under_way(site: _CloudletWriter, there: dict[str, ReportedInstance]) -> dict[str, Any]:
    """Returns the CRM's instances that running actions work on; these read them here, as a signal can be forged."""
    ours = [(path, seen) for path, seen in there.items() if any(is_at_or_below(path, owner) for owner in site.running)]
    return {path: seen.model_dump() for path, seen in ours}


def find_connection(connection: sa.Connection, path: str, notify_ids: list[int]) -> StoredReconnection:
    """Returns an open connection with one of these notify-ids and what its CRM reported at or below a path."""
    row = find_object(connection, cloudlet_of(path))
    for role in ("crm", "next"):
        address = crm_address_of(row, role) if row else None
        if row and address and address.notify_id in notify_ids:
            there = (row.info[role].get("reported") or {}).items()
            return StoredReconnection(
                news=Reconnected(
                    address=address,
                    reported={
                        each: ReportedInstance.model_validate(seen)
                        for each, seen in there
                        if is_at_or_below(each, path)
                    },
                )
            )
    return StoredReconnection()


def _why_connection_refused(site: _CloudletWriter, said: CrmConnect) -> str:
    if site.object_row is None:
        return f"there is no such Cloudlet: {site.path}"
    if said.notify_id <= site.newest_notify_id():
        return f"notify-id {said.notify_id} is not newer than {site.newest_notify_id()}"
    doing = site.object_row.target_action if site.owner else ""
    expected = site.stored_connection().get("version") or site.object_row.spec.get("version", "v1")
    if doing == "upgrade" or doing == "repair" or said.version == expected or _is_upgrade_successor(site, said):
        return ""
    return f"version {said.version} connected, but the cloudlet runs {expected}: upgrade it instead"


def _is_upgrade_successor(site: _CloudletWriter, said: CrmConnect) -> bool:
    """Tells whether this CRM is the new version of an upgrade that was cut off."""
    return said.version == site.stored_connection("next").get("version")


def _role_of_new_connection(site: _CloudletWriter, said: CrmConnect) -> str:
    """Returns `crm` for the CRM that serves, or `next` for the one that takes over at the end of an upgrade."""
    assert site.object_row
    upgrading = site.owner and site.object_row.target_action == "upgrade"
    beside = not site.owner and _is_upgrade_successor(site, said) and site.stored_connection().get("connected")
    return "next" if (upgrading or beside) and said.version != site.stored_connection().get("version") else "crm"


def _record_startup(site: _CloudletWriter) -> None:
    if site.status == S.UPDATE_ERROR:
        site.record_line(
            CrmActor.V1, "resend", S.UPDATE_ERROR, S.UPDATE_ERROR, "connected again; the state stays until repair"
        )
        return
    if not site.move_to(S.INIT, CrmActor.CRM):
        if site.move_to(site.status, CrmActor.CRM):
            site.record_line(CrmActor.CRM, "startup", site.status, site.status)
        return
    site.record_line(CrmActor.CRM, "startup", site.status, S.INIT)
    site.record_line(Actor.CONTROLLER, "ack", S.INIT, S.INIT_OK)
    site.write_object({}, status=S.INIT_OK, error="")


def _reconcile_instances(site: _CloudletWriter, there: dict[str, ReportedInstance]) -> None:
    """Compares instances at rest with the CRM's report: marks missing ones, records unknown ones as orphans."""
    rows = {
        row.path: row
        for row in starmap(
            RecordedInstance,
            site.connection.execute(
                _LOCK_INSTANCES.where(at_or_below_condition(objects.c.path, site.path)).order_by(objects.c.path)
            ),
        )
        if row.path != site.path
    }
    known = {path: (row.status, bool(row.info.get("missing"))) for path, row in rows.items()}
    busy = frozenset(path for path in {*rows, *there} if any(is_at_or_below(path, owner) for owner in site.running))
    ours = {
        path: reported for path, reported in there.items() if path.startswith(f"{site.path}:") and _is_valid_path(path)
    }
    differences = compare_instances(known, busy, ours)
    news = [path for path in differences.missing if not known[path][1]]
    _mark_instances(site, rows, news, True, "ignored: the CRM does not have it: missing; recreate it or delete it")
    _mark_instances(site, rows, differences.found_again, None, "the CRM has it again")
    if differences.orphans != site.info.get("orphans", []):
        site.write_object({"orphans": differences.orphans[:MAX_ORPHANS] or None})
    for path in differences.orphans[:MAX_ORPHANS]:
        told = f"ignored: orphan on the cloudlet, unknown to us: {path}"
        site.record_line(CrmActor.CRM, "startup", site.status, site.status, told, LineEffect.IGNORED)


def _mark_instances(
    site: _CloudletWriter, rows: dict[str, RecordedInstance], paths: Iterable[str], missing: bool | None, message: str
) -> None:
    effect = LineEffect.IGNORED if missing else LineEffect.APPLIED
    for path in paths:
        row = rows[path]
        same = (row.status, row.status, row.epoch, message, effect)
        change = {"info": merge_info(row.info, {"missing": missing}), "changed_at": site.at}
        told = history_line(path, site.at, CrmActor.CRM, "startup", *same)
        OBJECT_BY_PATH.change_objects(site.connection, {"name": path}, change, [told])


def record_answer(connection: sa.Connection, fact: AnswerReport, doubt: CheckProof) -> AnswerResult:
    """Records a CRM's message about the cloudlet itself while no action holds it: gathered, or gathering failed."""
    site, said = _CloudletWriter(connection, fact), fact.said
    if site.owner:
        return AnswerResult(owner=site.owner)
    if why := doubt(site.public_key):
        return _ignore_answer(site, said, why).model_copy(update={"refused": why})
    if said.status == S.READY and said.notify_id == site.stored_connection("next").get("notify_id"):
        site.write_object({"crm": site.stored_connection("next"), "next": None})  # it has replaced the one before
    if site.object_row is None or said.notify_id != site.stored_connection().get("notify_id"):
        return _ignore_answer(site, said, f"notify-id {said.notify_id} is not the current one")
    if said.status == S.READY and site.status in (S.UPDATE_ERROR, S.UNDER_MAINTENANCE):
        actor = CrmActor.V1 if site.status == S.UPDATE_ERROR else CrmActor.CRM
        site.record_line(actor, "resend", site.status, site.status, "it serves on; the state stays")
        return AnswerResult(everything=crm_address_of(site.object_row))
    if said.status == S.OFFLINE and said.errors and site.status == S.INIT_OK:
        site.write_object({}, error=said.joined_errors())
        site.record_line(
            CrmActor.CRM, "gathered", site.status, site.status, f"gathering failed: {said.joined_errors()}"
        )
        return AnswerResult()
    heard = CrmInterpreter(CLOUDLET, site.status, said.notify_id).interpret_message(said)
    if heard.effect is not MessageEffect.ENDS or heard.to != S.READY:
        return _ignore_answer(site, said, heard.why or "not while no action runs")
    site.record_line(CrmActor.CRM, "gathered", site.status, S.READY)
    site.write_object({}, status=S.READY, error="")
    return AnswerResult(everything=crm_address_of(site.object_row))


def _ignore_answer(site: _CloudletWriter, said: CrmResponse, why: str) -> AnswerResult:
    site.record_ignored("response", said.state, why)
    return AnswerResult(ignored=True)


def record_disconnect(connection: sa.Connection, fact: DisconnectReport, doubt: CheckProof) -> AnswerResult:
    """Records a lost connection. The cloudlet goes Offline unless another CRM is connected or an action holds it."""
    site, said = _CloudletWriter(connection, fact), fact.said
    if why := doubt(site.public_key):
        site.record_ignored("lost", S.OFFLINE, why)
        return AnswerResult(refused=why, ignored=True)
    role = next(
        (each for each in ("crm", "next") if site.stored_connection(each).get("notify_id") == said.notify_id), ""
    )
    if site.object_row is None or not role or not site.stored_connection(role).get("connected"):
        return AnswerResult()
    site.write_object({role: {**site.stored_connection(role), "connected": False}})
    if not site.owner and site.stored_connection("next"):
        crm, other = remaining_crms(site.stored_connection(), site.stored_connection("next"))
        site.write_object({"crm": crm, "next": other})
    if not site.owner and site.move_to(S.OFFLINE, Actor.CONTROLLER):
        site.record_line(Actor.CONTROLLER, "lost", site.status, S.OFFLINE, said.reason or "its CRM is gone")
        site.write_object({}, status=S.OFFLINE)
    return AnswerResult(owner=site.owner)


def record_ignored_messages(connection: sa.Connection, messages: Iterable[IgnoredMessage], at: datetime) -> int:
    """Records ignored messages in the histories of their objects."""
    lines = []
    for message in messages:
        if message.key and not mark_done(connection, f"ignored {message.key}"):
            continue
        row = find_object(connection, message.path)
        status, epoch = (row.status, row.epoch) if row else (NONE, 0)
        change = (status, format_one_line(message.state, 100), epoch, f"ignored: {message.reason}", LineEffect.IGNORED)
        lines.append(history_line(message.path, at, message.actor, "response", *change))
    record_lines(connection, lines)
    return len(lines)


def _is_valid_path(path: str) -> bool:
    try:
        return cloudlet_of(check_path(path)) != path
    except (Refused, IndexError):
        return False
