"""The specs of the edge's actions: cloudlets, instances and policies."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from domain.edge.proofs import KEY_BYTES, decode_key
from domain.edge.tables import EdgeStatus
from domain.errors import format_count
from domain.kinds import Remedy
from domain.model import FrozenModel
from domain.paths import short_path
from domain.services.definition import (
    DefinitionText,
    HealthCheck,
    ResourceLimits,
    SecretReference,
    Variable,
    find_service_contradiction,
)
from domain.validation import Name

EdgeText = Annotated[str, StringConstraints(max_length=200)]
Version = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,30}$")]


def _check_public_key(text: str) -> str:
    if text and len(decode_key(text)) != KEY_BYTES:
        raise ValueError(f"a key is {KEY_BYTES} bytes in base64, printed by: starter crm token --cloudlet ORG/NAME")
    return text


CrmPublicKey = Annotated[str, StringConstraints(max_length=100), AfterValidator(_check_public_key)]
_KEY_FIELD = Field("", description="The public key of its CRM's token; with one, unsigned messages are ignored.")

MAX_NODES = 10
DEFAULT_VERSION = "v1"  # of a CRM
DAY_SECONDS = 86_400.0


class Override(StrEnum):
    """How far a request goes without its CRM, or beyond the object's status, for an admin."""

    NONE = "none"
    IGNORE_CRM = "ignore-crm"  # do not ask the CRM
    IGNORE_CRM_ERRORS = "ignore-crm-errors"  # ask it, but succeed whatever it answers
    IGNORE_TRANSIENT_STATE = "ignore-transient-state"  # an admin repairs a stuck object; goes with --force
    IGNORE_CRM_AND_TRANSIENT_STATE = "ignore-crm-and-transient-state"

    @property
    def skips_crm(self) -> bool:
        return self in (Override.IGNORE_CRM, Override.IGNORE_CRM_AND_TRANSIENT_STATE)

    @property
    def allows_any_status(self) -> bool:
        return self in (Override.IGNORE_TRANSIENT_STATE, Override.IGNORE_CRM_AND_TRANSIENT_STATE)


class CrmPatience(FrozenModel):
    """How long to wait for the CRM, in seconds since its last message; `cap` limits the whole action."""

    connect: float = Field(1_800, gt=0, le=DAY_SECONDS)  # for a CRM to connect and be Ready
    create: float = Field(1_800, gt=0, le=DAY_SECONDS)
    update: float = Field(1_200, gt=0, le=DAY_SECONDS)
    delete: float = Field(1_200, gt=0, le=DAY_SECONDS)
    answer: float = Field(60, gt=0, le=DAY_SECONDS)  # for an answer to a progress request
    cleanup: float = Field(60, gt=0, le=DAY_SECONDS)  # for the clean-up of an undo
    probe: float = Field(
        30, gt=0, le=DAY_SECONDS
    )  # between pings of a webhook CRM; after three without an answer it counts as lost
    cap: float = Field(7_200, gt=0, le=7 * DAY_SECONDS)


_OVERRIDE_FIELD = Field(Override.NONE, description="How far this one request goes without the CRM.")


class CloudletSpec(FrozenModel):
    """The spec of `cloudlet create`: its CRM's version, transport, key and timeouts."""

    example = {"version": "v1", "description": "the hall in Berlin"}

    version: Version = Field(DEFAULT_VERSION, description="The CRM's version.")
    transport: Literal["queue", "webhook"] = Field("queue", description="How requests reach the CRM.")
    url: EdgeText = Field("", description="Where a webhook CRM takes requests.")
    description: EdgeText = ""
    key: CrmPublicKey = _KEY_FIELD
    patience: CrmPatience = CrmPatience()

    @model_validator(mode="after")
    def _check_webhook_url(self) -> Self:
        if self.transport == "webhook" and not self.url.startswith(("http://", "https://")):
            raise ValueError("a webhook needs a url that begins with http:// or https://")
        return self


def crm_command_line(cloudlet: str, spec: Mapping[str, Any]) -> str:
    """Returns the command that runs the CRM of a cloudlet: one of another version than the cloudlet's is ignored."""
    return f"starter crm run --cloudlet {short_path(cloudlet)} --version {spec.get('version') or DEFAULT_VERSION}"


def find_cloudlet_remedy(path: str, status: str, spec: Mapping[str, Any]) -> Remedy | None:
    """Returns what helps a cloudlet without a CRM: to start it. No action does."""
    return Remedy("start its CRM", crm_command_line(path, spec)) if status == EdgeStatus.OFFLINE else None


class UpgradeSpec(FrozenModel):
    """The spec of `cloudlet upgrade`: the CRM version to upgrade to."""

    example = {"version": "v2"}

    version: Version = Field(description="The version to upgrade to.")


class KeySpec(FrozenModel):
    """The spec of `cloudlet rekey`: the public key of a CRM's token; empty removes it."""

    example = {"key": ""}

    key: CrmPublicKey = _KEY_FIELD


class MaintenanceSpec(FrozenModel):
    """The spec of `cloudlet maintenance-start`: whether apps are first created on other cloudlets."""

    example = {"failover": True}

    failover: bool = Field(False, description="First create its apps on other cloudlets that have such a cluster.")


class ClusterSpec(FrozenModel):
    """The spec of `cluster create` and `update`: the desired state of a cluster."""

    example = {"nodes": 2}

    nodes: int = Field(1, ge=1, le=MAX_NODES, description="Number of nodes.")
    flavor: EdgeText = Field("small", description="Size of a node.")
    override: Override = _OVERRIDE_FIELD


class AppSpec(FrozenModel):
    """The spec of `app create` and `update`: the desired state of an app."""

    example = {"image": "shop:1", "replicas": 2}

    image: EdgeText = Field("nginx:stable", description="What to run.")
    command: EdgeText = Field("", description="Its program and words; by default the image's own.")
    replicas: int = Field(1, ge=1, le=1_000, description="How many of it.")
    port: int | None = Field(None, ge=1_024, le=65_535, description="Its port on the cloudlet's loopback.")
    health: HealthCheck | None = None
    environment: dict[Variable, DefinitionText] = Field(default={}, max_length=100)
    secretFrom: dict[Variable, SecretReference] = Field(default={}, max_length=100)
    resources: ResourceLimits | None = None
    deadline: float | None = Field(
        None, gt=0, le=DAY_SECONDS, description="Seconds until all of it must be healthy; 600 unless told."
    )
    override: Override = _OVERRIDE_FIELD

    def find_contradiction(self) -> str:
        """Tells which fields do not fit together; an update names only some of them, so all must be there."""
        return find_service_contradiction(self.port, self.health, self.environment, self.secretFrom)


class OverrideSpec(FrozenModel):
    """The spec of instance actions that take an override only."""

    override: Override = _OVERRIDE_FIELD


class DeleteClusterSpec(OverrideSpec):
    """The spec of `cluster delete`: whether its apps are deleted first, and an override."""

    example = {"cascade": True}

    cascade: bool = Field(False, description="Delete its apps first.")


class CandidateCluster(FrozenModel):
    """A cluster on a cloudlet where a policy may place its app."""

    cloudlet: Name
    cluster: Name


class AutoProvision(FrozenModel):
    """The policy type that runs an app where clients ask for it."""

    app: Name
    spec: AppSpec = AppSpec()
    deploy_client_count: int = Field(1, ge=1)
    deploy_interval_count: int = Field(1, ge=1, le=1_000)
    undeploy_client_count: int = Field(0, ge=0)  # undeploy where fewer clients ask; 0: never
    undeploy_interval_count: int = Field(1, ge=1, le=1_000)
    min_active: int = Field(0, ge=0, le=1_000)
    max: int = Field(0, ge=0, le=1_000)  # 0: no limit
    cloudlets: list[CandidateCluster] = Field(max_length=200)
    interval: float = Field(300, gt=0, le=DAY_SECONDS)

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        sites = [site.cloudlet for site in self.cloudlets]
        if len(set(sites)) < len(sites):
            raise ValueError("a cloudlet occurs more than once")
        if self.min_active > len(sites):
            raise ValueError(f"min_active {self.min_active} is more than its {format_count(len(sites), 'cloudlet')}")
        if self.max and self.max < self.min_active:
            raise ValueError(f"max {self.max} is less than min_active {self.min_active}")
        if self.undeploy_client_count >= self.deploy_client_count:
            raise ValueError("undeploy_client_count must be less than deploy_client_count, or an app comes and goes")
        return self


class AutoScale(FrozenModel):
    """The policy type that sets a cluster's number of nodes by its load. A target of 0 is not used."""

    cloudlet: Name
    cluster: Name
    min_nodes: int = Field(1, ge=1, le=MAX_NODES)
    max_nodes: int = Field(ge=1, le=MAX_NODES)
    target_cpu: float = Field(0, ge=0, le=100)
    target_mem: float = Field(0, ge=0, le=100)
    target_connections: float = Field(0, ge=0)
    stabilization_window: float = Field(300, ge=0, le=DAY_SECONDS)
    interval: float = Field(30, gt=0, le=DAY_SECONDS)

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        if self.max_nodes < self.min_nodes:
            raise ValueError(f"max_nodes {self.max_nodes} is less than min_nodes {self.min_nodes}")
        if not (self.target_cpu or self.target_mem or self.target_connections):
            raise ValueError("name at least one target: target_cpu, target_mem or target_connections")
        return self


class PolicySpec(FrozenModel):
    """The spec of a policy: either auto-provision or autoscale."""

    example = {"auto_scale": {"cloudlet": "berlin", "cluster": "c1", "min_nodes": 1, "max_nodes": 6, "target_cpu": 60}}

    auto_provision: AutoProvision | None = None
    auto_scale: AutoScale | None = None

    @model_validator(mode="after")
    def _check_one_rule(self) -> Self:
        if (self.auto_provision is None) == (self.auto_scale is None):
            raise ValueError("write either auto_provision or auto_scale")
        return self
