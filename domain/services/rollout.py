"""Which instances of a service to start and stop, and what is said of it.

Pure: backends supply the facts and carry out the decisions, so that all of them roll out alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from domain.errors import format_count
from domain.services.definition import Node

CRASHES_TO_FAIL = 4  # in a row, before a service counts as degraded
FIRST_BACKOFF = 0.1
LONGEST_BACKOFF = 30.0
_FIELDS_OUTSIDE_REVISION = {"name", "parts", "jobs", "instances", "after", "maxUnavailable", "maxSurge"}


@dataclass(frozen=True, slots=True)
class RunningInstance:
    """An instance as the rules of a roll-out need it: revision and health."""

    token: str
    revision: str
    healthy: bool


@dataclass(frozen=True, slots=True)
class InstanceChanges:
    """The next steps for a service: how many new instances to start, and which ones to stop."""

    start: int = 0
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ServiceFacts:
    """A backend's report on one service.

    `generation` is that of the last order it has seen; `current` counts healthy instances of the ordered definition.
    """

    path: str
    generation: int
    wanted: int
    alive: int = 0
    healthy: int = 0
    current: int = 0
    crashes: int = 0  # in a row, of the current instance that crashed most often
    message: str = ""
    former: int = 0  # healthy instances of another definition: they serve until they are replaced

    def is_rolled_out(self, generation: int = 0) -> bool:
        """Tells whether every instance of this or a later generation is healthy, and no older one is left."""
        return self.generation >= generation and self.current == self.wanted == self.alive

    def is_failing(self, generation: int = 0) -> bool:
        """Tells whether the definition of this or a later generation crashes repeatedly."""
        return self.generation >= generation and self.crashes >= CRASHES_TO_FAIL

    def is_only_miscounted(self) -> bool:
        """Tells whether only the number of instances is wrong, while all of them are healthy and current."""
        well = self.generation >= 0 and self.alive == self.healthy == self.current
        return well and not self.crashes and self.alive != self.wanted

    def describe(self) -> str:
        """Returns the healthy instances as text, with the backend's message."""
        why = f": {self.message}" if self.message else ""
        former = f", {self.former} of the former definition" if self.former else ""
        return f"{self.current} of {self.wanted} healthy{former}{why}"

    def describe_counts(self) -> str:
        """Returns the same counts for a table."""
        return f"{self.current}/{self.wanted}{f' +{self.former} former' if self.former else ''}"

    def describe_remaining(self) -> str:
        """Returns how many instances of a removed service are left, as text, with the backend's message."""
        why = f": {self.message}" if self.message else ""
        return f"{format_count(self.alive, 'instance')} left{why}"


def plan_instance_changes(node: Node, running: Sequence[RunningInstance]) -> InstanceChanges:
    """Returns the next steps of a rolling update or a scaling.

    They keep at least instances less maxUnavailable healthy, and at most instances plus maxSurge alive, as far as that
    held before.
    """
    want, now = node.instances, instance_revision(node)
    new = [instance for instance in running if instance.revision == now]
    old = [instance for instance in running if instance.revision != now]
    start = max(0, min(want - len(new), want + node.maxSurge - len(running)))
    spare = sum(instance.healthy for instance in running) - max(want - node.maxUnavailable, 0)
    stop: list[str] = []
    for instance in sorted(old, key=lambda candidate: candidate.healthy):  # unhealthy ones serve nobody
        if not instance.healthy or spare > 0:
            stop.append(instance.token)
            spare -= instance.healthy
    superfluous = sorted(new, key=lambda candidate: candidate.healthy)[: max(len(new) - want, 0)]
    return InstanceChanges(start, tuple(stop + [instance.token for instance in superfluous]))


def instance_revision(node: Node) -> str:
    """Returns a hash of a definition without its number of instances: equal for instances that need no replacement."""
    made_of = node.model_dump_json(exclude=_FIELDS_OUTSIDE_REVISION)
    return sha256(made_of.encode()).hexdigest()[:32]


def restart_delay(crashes: int) -> float:
    """Returns the seconds to wait before restarting an instance that has exited."""
    return float(min(FIRST_BACKOFF * 2 ** min(crashes, 20), LONGEST_BACKOFF))
