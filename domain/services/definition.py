"""The definition of a service: what runs, how often, how it is checked, and with which limits; and trees of them."""

from __future__ import annotations

import re
from collections.abc import Collection
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from domain.model import FrozenModel
from domain.validation import Name

MAX_PARTS = 5_000
MAX_INSTANCES = 100
MAX_JOBS = 100
NAMES_SHOWN = 5

BackendName = Literal["simulated", "process", "container"]
DefinitionWord = Annotated[str, StringConstraints(min_length=1, max_length=4_096)]
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
RESERVED_VARIABLES = ("PORT", "RATCHET_INSTANCE", "RATCHET_SERVICE")  # the backend sets these for every instance


def _check_variable_name(text: str) -> str:
    if not _VARIABLE.fullmatch(text):
        raise ValueError(f"{text[:40]!a} is no name of a variable: letters, digits and underscores")
    if text in RESERVED_VARIABLES:
        raise ValueError(f"{text} is given to every instance: it cannot be set")
    return text


def _check_no_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("it contains a NUL character")
    return text


Variable = Annotated[str, AfterValidator(_check_variable_name)]
DefinitionText = Annotated[str, StringConstraints(max_length=4_096), AfterValidator(_check_no_nul)]
CommandWords = Annotated[
    list[Annotated[DefinitionWord, AfterValidator(_check_no_nul)]], Field(min_length=1, max_length=100)
]


Image = Annotated[str, StringConstraints(min_length=1, max_length=500)]


class HealthCheck(FrozenModel):
    """The health check of an instance: by http, tcp or command. Without one it is healthy while it runs."""

    http: Annotated[str, StringConstraints(pattern=r"^/[!-~]*$", max_length=500)] | None = None
    tcp: bool = False
    command: CommandWords | None = None
    interval: float = Field(1.0, ge=0.05, le=60)
    timeout: float = Field(2.0, ge=0.05, le=60)
    failures: int = Field(3, ge=1, le=20)

    @model_validator(mode="after")
    def _check_one_method(self) -> Self:
        if (self.http is not None) + self.tcp + (self.command is not None) != 1:
            raise ValueError("exactly one of http, tcp and command says how to check")
        return self


class ResourceLimits(FrozenModel):
    """The resource limits of one instance."""

    memory: int | None = Field(None, ge=16, le=1_000_000, description="MiB: of address space, or of a container")
    cpus: float | None = Field(None, ge=0.01, le=1_000, description="CPUs' worth of time of a container")
    files: int | None = Field(None, ge=16, le=100_000, description="open files")
    processes: int | None = Field(None, ge=1, le=100_000, description="processes and threads")


class SecretReference(FrozenModel):
    """Where a secret's value is, on the machine of the backend: no definition holds the value."""

    file: Name | None = Field(None, description="a file of the system, in the backend's folder of secrets")
    env: Annotated[str, StringConstraints(pattern=_VARIABLE.pattern)] | None = Field(
        None, description="the backend's variable RATCHET_SECRET_ and this name"
    )

    @model_validator(mode="after")
    def _check_one_source(self) -> Self:
        if (self.file is None) == (self.env is None):
            raise ValueError("a secret is from a file or from env, one of the two")
        return self


def find_service_contradiction(
    port: int | None, health: HealthCheck | None, environment: Collection[str], secrets: Collection[str]
) -> str:
    """Tells why these words about a service cannot hold together; empty if they can."""
    if twice := sorted({*environment} & {*secrets})[:NAMES_SHOWN]:
        return f"{', '.join(twice)} is in environment and in secretFrom: write it once"
    if health and not port and (health.http is not None or health.tcp):
        return "a check by http or tcp needs a port"
    return ""


class Job(FrozenModel):
    """A task of a system that runs and ends. It is stored with the definition, and does not affect the status."""

    name: Name
    command: CommandWords | None = None
    image: Image | None = None
    directory: DefinitionText | None = None
    environment: dict[Variable, DefinitionText] = Field(default={}, max_length=100)
    resources: ResourceLimits = ResourceLimits()

    @model_validator(mode="after")
    def _check_command_or_image(self) -> Self:
        if (self.command is None) == (self.image is None):
            raise ValueError("a job has a command or an image, one of the two")
        return self


class Node(FrozenModel):
    """A system, if it has parts; a service, if it has a command, an image, or a command in an image."""

    name: Name | None = None
    jobs: list[Job] = Field(default=[], max_length=MAX_JOBS, description="tasks of a system that run and end")
    parts: list[Part] | None = Field(None, max_length=MAX_PARTS)
    command: CommandWords | None = None
    image: Image | None = None
    directory: DefinitionText | None = None
    readOnly: bool = Field(False, description="whether a container cannot write to its image's files")
    network: Literal["own", "host"] = Field("own", description="a container's: its own, or the machine's")
    instances: int = Field(1, ge=0, le=MAX_INSTANCES)
    environment: dict[Variable, DefinitionText] = Field(default={}, max_length=100)
    secretFrom: dict[Variable, SecretReference] = Field(
        default={}, max_length=100, description="variables whose values are not in the definition"
    )
    port: int | None = Field(None, ge=1_024, le=65_535, description="the service's port on the loopback")
    health: HealthCheck | None = None
    resources: ResourceLimits = ResourceLimits()
    after: list[Name] = Field(default=[], max_length=50, description="siblings that must be stable before it starts")
    maxUnavailable: int = Field(0, ge=0, le=MAX_INSTANCES)
    maxSurge: int = Field(1, ge=0, le=MAX_INSTANCES)
    stopSeconds: float = Field(10.0, ge=0, le=600)

    @property
    def is_system(self) -> bool:
        return self.parts is not None

    @property
    def has_own_network(self) -> bool:
        return self.network == "own"

    @model_validator(mode="after")
    def _check_system_or_service(self) -> Self:
        if (self.parts is not None) == (self.command is not None or self.image is not None):
            raise ValueError("say parts (a system), or command, image or both (a service)")
        if self.is_system and (extra := self.model_fields_set - {"name", "parts", "jobs"}):
            raise ValueError(f"a system has parts and jobs, not {', '.join(sorted(extra))}")
        if self.jobs and not self.is_system:
            raise ValueError("jobs are of a system, and this is a service: write them beside its parts")
        if wrong := find_service_contradiction(self.port, self.health, self.environment, self.secretFrom):
            raise ValueError(wrong)
        if not self.maxUnavailable and not self.maxSurge:
            raise ValueError("maxUnavailable and maxSurge cannot both be 0: nothing could ever be replaced")
        return self

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        names = [part.name or "" for part in (*(self.parts or ()), *self.jobs)]
        if twice := sorted({name for name in names if names.count(name) > 1})[:NAMES_SHOWN]:
            raise ValueError(f"names of parts and jobs must differ: {', '.join(twice)} occurs more than once")
        order = {part.name or "": part.after for part in self.parts or ()}
        if unknown := sorted({name for after in order.values() for name in after if name not in order})[:NAMES_SHOWN]:
            raise ValueError(f"after names parts beside it: there is no {', '.join(unknown)}")
        try:
            TopologicalSorter(order).prepare()
        except CycleError as error:
            raise ValueError(f"parts wait for each other: {' after '.join(reversed(error.args[1]))}") from error
        return self


class Part(Node):
    """A node inside another one: it must have a name."""

    name: Name


Node.model_rebuild()
