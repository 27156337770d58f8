"""Hooks of the edge family: admission checks beyond the state tables, and the clean-up of connections at finish."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from importlib.util import find_spec
from typing import Any

import sqlalchemy as sa
from pydantic import BaseModel

from domain.edge.messages import CrmAddress
from domain.edge.policies import cloudlet_of
from domain.edge.reports import CloudletGrantDetails, InstanceGrantDetails
from domain.edge.specs import (
    AppSpec,
    CloudletSpec,
    ClusterSpec,
    DeleteClusterSpec,
    KeySpec,
    Override,
    UpgradeSpec,
    crm_command_line,
    find_cloudlet_remedy,
)
from domain.edge.tables import POLICY, S, why_changes_refused
from domain.errors import Category, Refused, format_count
from domain.model import ActionResult, BeginRequest, Grant, Outcome
from domain.paths import name_of, parent_of, short_path
from domain.registry import find_requesting_program
from domain.statetable import Actor
from domain.validation import refuse_validation_errors
from store.edge.addresses import crm_address_of
from store.edge.previews import preview_cloudlet_action, preview_instance_action
from store.history import history_line, merge_info
from store.hooks import AdmissionFacts, GrantExtras, Hooks, MaybeObjectRow
from store.hostports import release_ports, reserve_ports
from store.rows import find_object, lock_object
from store.schema import ObjectRow, objects
from store.status import OBJECT_BY_PATH, update_object_columns

_SELECT_CHILDREN = (
    sa.select(objects.c.path, objects.c.status, objects.c.spec)
    .where(objects.c.parent == sa.bindparam("at_path"))
    .order_by(objects.c.path)
)

StoredCrmConnection = dict[str, Any] | None  # the stored fields of a CRM connection

MAX_CASCADED_APPS = 500


def admit_cloudlet(connection: sa.Connection, facts: AdmissionFacts) -> GrantExtras:
    """Refuses an upgrade or maintenance without a connected CRM, and a delete of a non-empty cloudlet."""
    claim, spec, object_row, _ = facts
    path, action = claim.request.path, claim.request.action
    if object_row is None or isinstance(spec, CloudletSpec):
        assert isinstance(spec, CloudletSpec)
        kept = spec.model_dump(mode="json")
        _check_signatures_supported(spec.key)
        there = crm_address_of(object_row) if object_row else None  # the CRM of a create that was cut off
        return GrantExtras(details=_cloudlet_details(there, spec), spec=kept)
    address = crm_address_of(object_row)
    if isinstance(spec, UpgradeSpec):
        _check_can_upgrade(object_row, address, spec)
    if isinstance(spec, KeySpec):
        _check_signatures_supported(spec.key)
    if action in ("maintenance-start", "maintenance-end") and address is None:
        raise Refused(
            Category.NOT_ALLOWED,
            f"{action} is not possible: no CRM is connected to {path}",
            f"start it: {crm_command_line(path, object_row.spec)}",
        )
    if action == "delete" and (inside := connection.execute(_SELECT_CHILDREN, {"at_path": path}).all()):
        raise Refused(
            Category.NOT_ALLOWED,
            f"delete is not allowed for Cloudlet {path}: it has {format_count(len(inside), 'cluster')}, "
            f"the first is {inside[0].path}",
            f"delete them first: starter cluster delete {short_path(inside[0].path)} --cascade",
        )
    return GrantExtras(
        details=_cloudlet_details(
            address, CloudletSpec.model_validate(object_row.spec), crm_address_of(object_row, "next")
        )
    )


def _cloudlet_details(
    address: CrmAddress | None, spec: CloudletSpec, other: CrmAddress | None = None
) -> CloudletGrantDetails:
    return CloudletGrantDetails(address=address, next=other, patience=spec.patience, spec=spec.model_dump(mode="json"))


def _check_signatures_supported(key: str) -> None:
    if key and not find_spec("cryptography"):
        why = "a cloudlet with a key needs workers that can check proofs, and this one cannot"
        raise Refused(Category.NOT_ALLOWED, why, "install its extra: encryption")


def _check_can_upgrade(found: ObjectRow, address: CrmAddress | None, spec: UpgradeSpec) -> None:
    path = found.path
    if address is None:
        raise Refused(
            Category.NOT_ALLOWED,
            f"upgrade is not possible: no CRM is connected to {path} that could start another one",
            f"start it: {crm_command_line(path, found.spec)}",
        )
    if address.version == spec.version:
        raise Refused(Category.NOT_ALLOWED, f"{path} runs {spec.version} already", "name another --version")


def admit_instance(connection: sa.Connection, facts: AdmissionFacts) -> GrantExtras:
    """Refuses unless the cloudlet takes changes, an app's cluster is Ready, and a cluster to delete is empty."""
    claim, spec, object_row, _ = facts
    request = claim.request
    override = Override(getattr(spec, "override", Override.NONE))
    if override.allows_any_status and not request.force:
        raise Refused(Category.INVALID, f"{override} takes over from what is there", "say so: add --force")
    cloudlet = _require_usable_cloudlet(connection, request.path, override)
    _require_ready_cluster(connection, request.path, request.action, object_row)
    if request.action == "recreate" and not (object_row and object_row.info.get("missing")):
        raise Refused(
            Category.NOT_ALLOWED,
            f"recreate is only for what its cloudlet has lost: {request.path} is not missing",
            f"see it: starter get {request.path}",
        )
    if request.action == "discard" and request.path not in cloudlet.info.get("orphans", ()):
        message = f"{request.path} is no orphan: the CRM of {cloudlet.path} has not reported it"
        raise Refused(Category.NOT_FOUND, message, "a CRM reports what it has when it connects")
    before = dict(object_row.spec) if object_row else {}
    after = _spec_after_action(request.action, spec, request.spec or {}, before)
    if isinstance(spec, AppSpec) or request.action == "recreate":
        _reserve_port(connection, claim, after)
    apps = _apps_to_delete(connection, request.path, request.action, spec)
    address = None if override.skips_crm else crm_address_of(cloudlet)
    terms = InstanceGrantDetails(
        address=address,
        patience=CloudletSpec.model_validate(cloudlet.spec).patience,
        spec=after,
        before=before,
        tolerant=override is Override.IGNORE_CRM_ERRORS,
        apps=apps,
        key=cloudlet.spec.get("key", ""),
    )
    kept = after if request.action == "create" else None
    made_by = {"policy": name_of(request.requested_by)} if find_requesting_program(request) == POLICY.kind else {}
    info = {"progress": None} if object_row else made_by
    return GrantExtras(details=terms, spec=kept, info=info)


def _require_usable_cloudlet(connection: sa.Connection, path: str, override: Override) -> ObjectRow:
    home = cloudlet_of(path)
    row = find_object(connection, home)
    if row is None:
        raise Refused(
            Category.NOT_FOUND,
            f"there is no such Cloudlet: {home}",
            f"make it: starter cloudlet create {short_path(home)}",
        )
    why = why_changes_refused(row.status, crm_address_of(row) is not None)
    if why and not override.skips_crm:
        hint = {
            S.UPDATE_ERROR: f"correct the cause, then: starter cloudlet repair {short_path(home)}",
            S.UNDER_MAINTENANCE: f"end it: starter cloudlet maintenance-end {short_path(home)}",
            S.OFFLINE: str(find_cloudlet_remedy(home, row.status, row.spec)),
        }.get(S(row.status), f"see it: starter cloudlet status {short_path(home)}")
        raise Refused(Category.NOT_ALLOWED, f"Cloudlet {home} takes no changes now: {why}", hint)
    return row


def _require_ready_cluster(connection: sa.Connection, path: str, action: str, object_row: MaybeObjectRow) -> None:
    """Refuses an action on an app whose cluster is missing or not Ready, except to delete the app.

    A cluster that is being changed is locked, so begin has refused before.
    """
    above = parent_of(path)
    if above is None or above == cloudlet_of(path):
        return
    cluster = find_object(connection, above)
    if cluster is None and (action == "discard" or (object_row and action == "delete")):
        return
    if cluster is None:
        hint = f"make it: starter cluster create {short_path(above)}"
        raise Refused(Category.NOT_FOUND, f"there is no such ClusterInst: {above}", hint)
    if action in ("create", "recreate") and cluster.status != S.READY:
        raise Refused(
            Category.NOT_ALLOWED,
            f"{action} of AppInst needs its ClusterInst Ready: {above} is {cluster.status}",
            f"see why: starter history {above}",
        )


def _spec_after_action(
    action: str, spec: BaseModel | None, given: dict[str, Any], before: dict[str, Any]
) -> dict[str, Any]:
    """Returns the instance's spec after the action; an update merges the given fields into the stored spec."""
    if not isinstance(spec, ClusterSpec | AppSpec):
        return before
    wanted = spec
    if action == "update":
        with refuse_validation_errors("the spec is not valid"):
            wanted = type(spec).model_validate({**before, **given})
    if isinstance(wanted, AppSpec) and (wrong := wanted.find_contradiction()):
        raise Refused(
            Category.INVALID, f"the spec is not valid: {wrong}", "see what it takes: starter schema app create"
        )
    stored = wanted.model_dump(mode="json", exclude={"override"})
    return {name: value for name, value in stored.items() if value not in (None, {})}


def _reserve_port(connection: sa.Connection, claim: BeginRequest, spec: dict[str, Any]) -> None:
    """Reserves the port of an app on its cloudlet, or refuses: all apps of a cloudlet share one loopback."""
    path, port = claim.request.path, spec.get("port")
    for taken in reserve_ports(connection, cloudlet_of(path), claim.run, path, {port: path} if port else {}):
        message = f"a cloudlet has each port once: port {taken.port} of {path} is that of {taken.describe_holder()}"
        raise Refused(Category.NOT_ALLOWED, message, f"choose another port, or {taken.find_remedy()}")


def _apps_to_delete(
    connection: sa.Connection, path: str, action: str, spec: BaseModel | None
) -> dict[str, dict[str, Any]]:
    """Returns the apps to delete with a cluster. Refuses if there are any and --cascade was not given."""
    if action != "delete" or not isinstance(spec, DeleteClusterSpec):
        return {}
    inside: Sequence[Any] = connection.execute(_SELECT_CHILDREN, {"at_path": path}).all()
    if inside and not spec.cascade:
        raise Refused(
            Category.NOT_ALLOWED,
            f"delete is not allowed for ClusterInst {path}: it has {format_count(len(inside), 'app')}, "
            f"the first is {inside[0].path}",
            "delete them first, or all together: add --cascade",
        )
    if len(inside) > MAX_CASCADED_APPS:
        raise Refused(
            Category.NOT_ALLOWED,
            f"{path} has {len(inside)} apps: at most {MAX_CASCADED_APPS} go together",
            "delete some",
        )
    return {app.path: dict(app.spec) for app in inside}


def finish_instance_action(connection: sa.Connection, grant: Grant, outcome: Outcome, _at: datetime) -> None:
    """Releases ports that no app has, and takes an instance off its cloudlet's orphans once an action has succeeded."""
    release_ports(connection, grant.path)
    home = cloudlet_of(grant.path)
    row = find_object(connection, home)
    if outcome.result is not ActionResult.SUCCEEDED or not row or grant.path not in row.info.get("orphans", ()):
        return
    row = lock_object(connection, home)
    if row:
        left = [path for path in row.info.get("orphans", ()) if path != grant.path]
        update_object_columns(connection, home, info=merge_info(row.info, {"orphans": left or None}))


def finish_cloudlet_action(connection: sa.Connection, grant: Grant, outcome: Outcome, at: datetime) -> None:
    """Writes the cloudlet's status and CRM connections at finish, as CRMs came and went during the action."""
    row = lock_object(connection, grant.path)
    if row is None:
        return
    row = _apply_handover(connection, row, grant, outcome)
    crm, other = row.info.get("crm"), row.info.get("next")
    repaired = row.status == S.READY and grant.action == "repair"
    if row.status == S.READY and grant.action == "upgrade" and other:  # cut off
        why = "its upgrade was cut off when the other CRM had connected; the state stays until repair"
        _set_cloudlet_status(connection, grant, at, "cut off", S.UPDATE_ERROR, why)
    elif row.status == S.READY and not crm_address_of(row):
        _set_cloudlet_status(connection, grant, at, "lost", S.OFFLINE, "its CRM is gone")
    if other:
        kept = grant.action in ("upgrade", "repair") and not repaired  # not after a rekey: it has to prove the new key
        crm, other = remaining_crms(crm, other) if kept else (crm, None)
        info = merge_info(row.info, {"crm": crm, "next": other})
        update_object_columns(connection, grant.path, info=info)
    if repaired and crm:  # a repair may have started another version
        update_object_columns(connection, grant.path, spec={**row.spec, "version": crm["version"]})


def _apply_handover(connection: sa.Connection, found: ObjectRow, grant: Grant, outcome: Outcome) -> ObjectRow:
    """Applies a successful upgrade or rekey to the stored CRM connections."""
    crm, other = found.info.get("crm"), found.info.get("next")
    if outcome.result is not ActionResult.SUCCEEDED or not (crm or other):
        return found
    if grant.action == "upgrade" and other and other["version"] == found.spec.get("version"):
        news = {"crm": other, "next": None}
    elif grant.action == "rekey" and crm:  # a connected CRM has to prove the new key
        news = {"crm": {**crm, "connected": False}, "next": None}
    else:
        return found
    info = merge_info(found.info, news)
    update_object_columns(connection, grant.path, info=info)
    return found._replace(info=info)


def remaining_crms(
    crm: StoredCrmConnection, other: StoredCrmConnection
) -> tuple[StoredCrmConnection, StoredCrmConnection]:
    """Returns the serving CRM and the CRM to take over, after an upgrade was cut off: those still connected."""
    if not other or not other.get("connected"):
        return crm, None
    return (crm, other) if crm and crm.get("connected") else (other, None)


def _set_cloudlet_status(connection: sa.Connection, grant: Grant, at: datetime, action: str, to: S, why: str) -> None:
    change = {"status": to.value, "changed_at": at, **({"error": why} if to is S.UPDATE_ERROR else {})}
    told = history_line(grant.path, at, Actor.CONTROLLER, action, S.READY, to, grant.epoch, why)
    OBJECT_BY_PATH.change_objects(connection, {"name": grant.path}, change, [told])


HOOKS: dict[str, Hooks] = {
    "cloudlet": Hooks(admit=admit_cloudlet, on_finish=finish_cloudlet_action, rehearse=preview_cloudlet_action),
    "cluster": Hooks(admit=admit_instance, on_finish=finish_instance_action, rehearse=preview_instance_action),
    "app": Hooks(admit=admit_instance, on_finish=finish_instance_action, rehearse=preview_instance_action),
}
