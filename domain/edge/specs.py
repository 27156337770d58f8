"""What can be asked of cloudlets, instances and policies, and with what parameters."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from domain.edge.proofs import KEY_BYTES, key_bytes
from domain.fields import Name
from domain.model import Model

EdgeText = Annotated[str, StringConstraints(max_length=200)]
Version = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,30}$")]


def _public_key(text: str) -> str:
    if text and len(key_bytes(text)) != KEY_BYTES:
        raise ValueError(f"a key is {KEY_BYTES} bytes in base64: starter crm token prints it")
    return text


PublicKey = Annotated[str, StringConstraints(max_length=100), AfterValidator(_public_key)]
_KEY = Field("", description="The public half of its CRM's token; with one, nobody is heard without proof.")

MAX_NODES = 10
DAY = 86_400.0


class Override(StrEnum):
    """For one request only."""

    NONE = "none"
    IGNORE_CRM = "ignore-crm"  # do not tell the CRM
    IGNORE_CRM_ERRORS = "ignore-crm-errors"  # tell it, succeed whatever it says
    IGNORE_TRANSIENT_STATE = "ignore-transient-state"  # an admin repairs a stuck object; goes with --force
    IGNORE_CRM_AND_TRANSIENT_STATE = "ignore-crm-and-transient-state"

    @property
    def without_crm(self) -> bool:
        return self in (Override.IGNORE_CRM, Override.IGNORE_CRM_AND_TRANSIENT_STATE)

    @property
    def any_status(self) -> bool:
        return self in (Override.IGNORE_TRANSIENT_STATE, Override.IGNORE_CRM_AND_TRANSIENT_STATE)


class CrmPatience(Model):
    """How long to wait for the CRM, in seconds, counted from its last message; `cap` is the end of all patience."""

    connect: float = Field(1_800, gt=0, le=DAY)  # for a CRM to come and be Ready
    create: float = Field(1_800, gt=0, le=DAY)
    update: float = Field(1_200, gt=0, le=DAY)
    delete: float = Field(1_200, gt=0, le=DAY)
    answer: float = Field(60, gt=0, le=DAY)  # for an answer to: are you still at it?
    cleanup: float = Field(60, gt=0, le=DAY)  # for what an undo has to clean up
    probe: float = Field(30, gt=0, le=DAY)  # between pings of a webhook CRM; after three without an answer it is gone
    cap: float = Field(7_200, gt=0, le=7 * DAY)


_OVERRIDE = Field(Override.NONE, description="For this request only: how far to go without the CRM.")


class CloudletSpec(Model):
    """A cloudlet, and how its CRM is reached."""

    version: Version = Field("v1", description="The CRM's version.")
    transport: Literal["queue", "webhook"] = Field("queue", description="How requests reach the CRM.")
    url: EdgeText = Field("", description="Where a webhook CRM takes requests.")
    description: EdgeText = ""
    key: PublicKey = _KEY
    patience: CrmPatience = CrmPatience()

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        if self.transport == "webhook" and not self.url.startswith(("http://", "https://")):
            raise ValueError("a webhook needs a url that begins with http:// or https://")
        return self


class UpgradeSpec(Model):
    """Which version of the CRM is to take the cloudlet over."""

    version: Version = Field(description="The version to upgrade to.")


class KeySpec(Model):
    """The public key of a CRM's token; empty takes it away."""

    key: PublicKey = _KEY


class MaintenanceSpec(Model):
    """Whether apps are brought elsewhere first."""

    failover: bool = Field(False, description="First create its apps on other cloudlets that have such a cluster.")


class ClusterSpec(Model):
    """A cluster as it should be."""

    nodes: int = Field(1, ge=1, le=MAX_NODES, description="Number of nodes.")
    flavor: EdgeText = Field("small", description="Size of a node.")
    override: Override = _OVERRIDE


class AppSpec(Model):
    """An app as it should be."""

    image: EdgeText = Field("nginx:stable", description="What to run.")
    replicas: int = Field(1, ge=1, le=1_000, description="How many of it.")
    override: Override = _OVERRIDE


class OverrideSpec(Model):
    """How far to go without the CRM."""

    override: Override = _OVERRIDE


class DeleteClusterSpec(OverrideSpec):
    """Whether its apps go first, and how far to go without the CRM."""

    cascade: bool = Field(False, description="Delete its apps first.")


class Site(Model):
    """Where a policy may place its app."""

    cloudlet: Name
    cluster: Name


class AutoProvision(Model):
    """Where an app runs, by the number of clients that ask for it there."""

    app: Name
    spec: AppSpec = AppSpec()
    deploy_client_count: int = Field(1, ge=1)
    deploy_interval_count: int = Field(1, ge=1, le=1_000)
    undeploy_client_count: int = Field(0, ge=0)  # it goes where fewer ask for it; 0: never by demand
    undeploy_interval_count: int = Field(1, ge=1, le=1_000)
    min_active: int = Field(0, ge=0, le=1_000)
    max: int = Field(0, ge=0, le=1_000)  # 0: no limit
    cloudlets: list[Site] = Field(max_length=200)
    interval: float = Field(300, gt=0, le=DAY)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        sites = [site.cloudlet for site in self.cloudlets]
        if len(set(sites)) < len(sites):
            raise ValueError("a cloudlet occurs more than once")
        if self.min_active > len(sites):
            raise ValueError(f"min_active {self.min_active} is more than its {len(sites)} cloudlets")
        if self.max and self.max < self.min_active:
            raise ValueError(f"max {self.max} is less than min_active {self.min_active}")
        if self.undeploy_client_count >= self.deploy_client_count:
            raise ValueError("undeploy_client_count must be less than deploy_client_count, or an app comes and goes")
        return self


class AutoScale(Model):
    """How many nodes a cluster has, by the load on it. A target of 0 is not looked at."""

    cloudlet: Name
    cluster: Name
    min_nodes: int = Field(1, ge=1, le=MAX_NODES)
    max_nodes: int = Field(ge=1, le=MAX_NODES)
    target_cpu: float = Field(0, ge=0, le=100)
    target_mem: float = Field(0, ge=0, le=100)
    target_connections: float = Field(0, ge=0)
    stabilization_window: float = Field(300, ge=0, le=DAY)
    interval: float = Field(30, gt=0, le=DAY)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.max_nodes < self.min_nodes:
            raise ValueError(f"max_nodes {self.max_nodes} is less than min_nodes {self.min_nodes}")
        if not (self.target_cpu or self.target_mem or self.target_connections):
            raise ValueError("name at least one target: target_cpu, target_mem or target_connections")
        return self


class PolicySpec(Model):
    """One of the two."""

    auto_provision: AutoProvision | None = None
    auto_scale: AutoScale | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.auto_provision is None) == (self.auto_scale is None):
            raise ValueError("write either auto_provision or auto_scale")
        return self
