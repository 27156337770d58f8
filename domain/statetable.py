"""State tables: rows of (action, from, while, then, else) that decide which status changes are legal.

Everything else, such as sets of statuses, is derived from the rows. An *action* row has a status *while* the work is
under way. A *step* row has none: it is one change that an actor may make or report. A step that ends where it began
means that there is nothing to do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from domain.errors import Category, Refused

NONE = "None"  # the status of an object that does not exist; the TargetStatus of one at rest
SAME = "<same>"  # the status the object came from


class Actor(StrEnum):
    """The actors that may use a row of a state table."""

    USER = "User"
    GROUP = "Group"  # a user's action on a group, for its members; never requested of a member itself
    CONTROLLER = "Controller"  # our own workflows and self-healing
    CLOUD = "Cloud"  # a provider that reports a status


RESTORED = "restored to its status before"  # in the message of a recovery
NO_STATUS = "?"  # in a history line: the message named no status, such as one of another shape


class LineEffect(StrEnum):
    """What became of a history line's change: applied, ignored, or made by an unsuccessful action."""

    APPLIED = "applied"  # the change was made
    IGNORED = "ignored"  # nothing was changed
    ABANDONED = "abandoned"  # the change was made by an action that failed, was cancelled or was cut off


@dataclass(frozen=True, slots=True)
class Row:
    """`action` takes an object from `source`, through `during`, to `then`, or to `otherwise` if it fails."""

    action: str
    source: str
    during: str | None
    then: str
    otherwise: str | None = None
    actor: str = Actor.USER
    force: bool = False  # only with force
    hidden: bool = False  # no status shows it; it and users' actions wait for each other
    rests: bool = False  # `then` is also a transitional status; after this row the object rests in it
    target: str | None = None  # the TargetStatus meanwhile, if it is not `then`: for a group, its members'

    def success_status(self, came_from: str) -> str:
        """Returns the status after success."""
        return came_from if self.then == SAME else self.then

    def target_status(self, came_from: str) -> str:
        """Returns the status that the action aims at, which a reader sees while the action runs."""
        return self.success_status(came_from) if self.target is None else self.target

    def failure_status(self, came_from: str) -> str:
        """Returns the status after a failure."""
        return came_from if self.otherwise in (SAME, None) else str(self.otherwise)


class Ruling(StrEnum):
    """A state table's answer about an action or a step: allowed, refused, or nothing to do."""

    GO = "go"
    ALREADY = "already"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A ruling, with the row that allows it or the reason for the refusal."""

    ruling: Ruling
    row: Row | None = None
    reason: str = ""
    members: Mapping[str, Row] = field(default_factory=dict)  # of a group: the row for those in each status that go


@dataclass(frozen=True)
class StateTable:
    """The state table of one kind of object, and what follows from its rows."""

    kind: str
    label: str  # what messages call the object: "VM"
    rows: tuple[Row, ...]
    passing_statuses: tuple[str, ...] = ()  # statuses between *while* and the end: transitional as well
    vacant_statuses: tuple[str, ...] = ()  # the object is gone for good, and its name may be reused

    @cached_property
    def user_actions(self) -> tuple[str, ...]:
        """The actions that a user can request, in table order."""
        return tuple(dict.fromkeys(row.action for row in self.rows if row.actor == Actor.USER))

    @cached_property
    def statuses(self) -> tuple[str, ...]:
        """Every status in the rows, in table order."""
        words = (word for row in self.rows for word in (row.source, row.during, row.then, row.otherwise))
        return tuple(dict.fromkeys(word for word in words if word not in (None, NONE, SAME)))

    @cached_property
    def transitional_statuses(self) -> tuple[str, ...]:
        """The statuses in which an action is under way."""
        return tuple(dict.fromkeys((*(row.during for row in self.rows if row.during), *self.passing_statuses)))

    @cached_property
    def transitional_resting_statuses(self) -> tuple[str, ...]:
        """The transitional statuses that an object may also rest in; its TargetAction tells which it is."""
        return tuple(dict.fromkeys(row.then for row in self.rows if row.rests))

    @cached_property
    def always_transitional_statuses(self) -> tuple[str, ...]:
        """The statuses that an object has only while an action is under way."""
        return tuple(
            status for status in self.transitional_statuses if status not in self.transitional_resting_statuses
        )

    @cached_property
    def hidden_actions(self) -> tuple[str, ...]:
        """Actions that change no status while they run, such as `migrate`."""
        return tuple(dict.fromkeys(row.action for row in self.rows if row.hidden))

    @cached_property
    def stable_statuses(self) -> tuple[str, ...]:
        """The statuses that an object may rest in."""
        return tuple(status for status in self.statuses if status not in self.always_transitional_statuses)

    @cached_property
    def final_statuses(self) -> tuple[str, ...]:
        """The stable statuses that no action leaves, except to remove the object."""
        left = {row.source for row in self.rows if row.during and row.then not in (NONE, SAME)}
        return tuple(status for status in self.stable_statuses if status not in left)

    @cached_property
    def orphan_removal_action(self) -> str:
        """The action that removes, at the provider, an object without a record; empty if there can be none."""
        return next((row.action for row in self.rows if row.source == NONE and row.then == NONE), "")

    @cached_property
    def actions_on_nothing(self) -> frozenset[str]:
        """The actions that a user can request where there is no object."""
        rows = (row for row in self.rows if row.source == NONE and row.actor == Actor.USER and not row.force)
        return frozenset(row.action for row in rows)

    def is_creation(self, action: str) -> bool:
        """Tells whether users create objects with this action. Its other rows repeat a failed creation."""
        rows = [row for row in self.rows if row.action == action and row.actor == Actor.USER]
        births = {row.during for row in rows if row.source == NONE and row.then != NONE}
        return bool(births) and all(row.during in births for row in rows)

    def allowed_actions(self, status: str, force: bool = False) -> tuple[str, ...]:
        """Returns the actions that a user may request in this status."""
        return tuple(
            action for action in self.user_actions if self.judge(status, action, force=force).ruling is Ruling.GO
        )

    def actions_needing_force(self, status: str) -> tuple[str, ...]:
        """Returns the actions that a user may request in this status with force only, because a row says so."""
        rows = (row for row in self.rows if row.source == status and row.actor == Actor.USER and row.force)
        return tuple(dict.fromkeys(row.action for row in rows))

    def describe_allowed_actions(self, statuses: Iterable[str], offered: Collection[str]) -> str:
        """Returns the actions allowed in these statuses, and those that need --force, as the hint of a refusal."""
        words = list(statuses)
        plain = dict.fromkeys(action for word in words for action in self.allowed_actions(word) if action in offered)
        needing = (action for word in words for action in self.actions_needing_force(word) if action in offered)
        forced = dict.fromkeys(needing)
        told = f"allowed now: {', '.join(plain) or 'nothing'}"
        return f"{told}; with --force: {', '.join(forced)}" if forced else told

    def judge(self, status: str, action: str, actor: str = Actor.USER, force: bool = False) -> Verdict:
        """Judges whether `actor` may begin `action`. `force` skips the check of the status, never of existence or
        finality.

        Force never makes a creation act on an existing object: only a row from that very status does.
        """
        rows = [row for row in self.rows if row.action == action]
        if not rows:
            actions = ", ".join(self.user_actions)
            raise Refused(Category.INVALID, f"unknown action {action!r} for {self.label}", f"actions are: {actions}")
        for row in rows:
            if row.source == status and row.actor == actor and (force or not row.force):
                return self._allowed_verdict(row, status)
        skips = force and actor == Actor.USER and not self.is_creation(action)
        if skips and status != NONE and status not in self.final_statuses:
            for row in rows:
                if row.source != NONE and row.actor == actor and row.during:
                    return Verdict(Ruling.GO, row)
        return Verdict(Ruling.REFUSED, reason=self._refusal_reason(rows, status, action, actor))

    def judge_member(self, status: str, action: str, force: bool = False) -> Verdict:
        """Judges whether an action on the group may include this member."""
        of_group = any(row.action == action and row.actor == Actor.GROUP for row in self.rows)
        return self.judge(status, action, Actor.GROUP if of_group else Actor.USER, force)

    def judge_members(self, counts: Mapping[str, int], action: str, row: Row, force: bool = False) -> Verdict:
        """Judges an action on a group, allowed by the group's `row`, by how many of its members are in each status."""
        verdicts = {status: self.judge_member(status, action, force) for status in counts}
        going = {word: verdict.row for word, verdict in verdicts.items() if verdict.ruling is Ruling.GO and verdict.row}
        if going or (row.then == NONE and not counts):  # an empty group can still be removed
            return Verdict(Ruling.GO, row, members=going)
        # An empty group has nothing to do if the action is refused for no status that a member may rest in.
        judged = verdicts or {status: self.judge_member(status, action) for status in self.stable_statuses}
        rulings = {verdict.ruling for verdict in judged.values()}
        if Ruling.ALREADY in rulings if counts else Ruling.REFUSED not in rulings:
            return Verdict(Ruling.ALREADY)
        reasons = (f"{verdict.reason} ({counts[status]} of them)" for status, verdict in verdicts.items())
        return Verdict(Ruling.REFUSED, reason="; ".join(reasons))

    def allows_any_member(self, statuses: Iterable[str], action: str) -> bool:
        """Tells whether an action on the group may include a member in one of these statuses."""
        return any(self.judge_member(status, action).ruling is Ruling.GO for status in statuses)

    def judge_step(self, status: str, to: str, actor: str) -> Verdict:
        """Judges whether `actor` may move an object from `status` to `to` in one step."""
        for row in self.rows:
            if row.during is not None or row.hidden:
                continue
            if row.actor == actor and row.source == status and row.success_status(status) == to:
                return self._allowed_verdict(row, status)
        return Verdict(Ruling.REFUSED, reason=f"no row lets {actor} move {self.label} from {status} to {to}")

    def can_land(self, action: str, during: str, came_from: str, to: str) -> bool:
        """Tells whether a target under `during` may end as `to`: by its row, or because the cloud may report it."""
        return self.find_ending_row(action, during, came_from, to) is not None

    def find_ending_row(self, action: str, during: str, came_from: str, to: str) -> Row | None:
        """Returns the row by which a target under `during` ends as `to`; rows from where it came are preferred."""
        here = [
            row
            for row in self.rows
            if row.action == action and (row.during == during or (row.during and during in self.passing_statuses))
        ]
        own = [row for row in here if row.source == came_from]
        for row in own or here:
            if to in (row.success_status(came_from), row.failure_status(came_from)):
                return row
        return self.judge_step(during, to, Actor.CLOUD).row

    def find_entry_row(self, action: str, status: str, to: str) -> Row | None:
        """Returns the row by which an action on another object moves this one to its *while* status."""
        for row in self.rows:
            if row.action == action and row.source == status and row.during == to:
                return row
        return None

    def find_creation_row(self, action: str) -> Row | None:
        """Returns the row by which an action on another object creates one of this kind."""
        return next((row for row in self.rows if row.action == action and row.source == NONE), None)

    def recovery_status(self, action: str, came_from: str) -> str:
        """Returns an object's status after its action died: where it came from if it may rest there, else *else*."""
        if came_from != NONE and came_from not in self.always_transitional_statuses:
            return came_from  # even if force took it out of a status that no row names: it is still in that status
        rows = (row for row in self.rows if row.action == action and row.source == came_from)
        return next((row.failure_status(came_from) for row in rows), came_from)

    def _allowed_verdict(self, row: Row, status: str) -> Verdict:
        nothing_to_do = row.during is None and row.success_status(status) == status and not row.hidden
        return Verdict(Ruling.ALREADY if nothing_to_do else Ruling.GO, row)

    def _refusal_reason(self, rows: list[Row], status: str, action: str, actor: str) -> str:
        here = [row for row in rows if row.source == status]
        if any(row.actor != actor for row in here) and (status != NONE or actor != Actor.USER):
            return f"{action} is not for {actor} on {self.label} under {status}"
        if any(row.force for row in here):
            return f"{action} is not allowed for {self.label} under {status} without force"
        if status == NONE:
            return f"there is no such {self.label}"
        if all(row.source == NONE for row in rows) or self.is_creation(action):
            return f"{self.label} exists already, under {status}"
        return f"{action} is not allowed for {self.label} under {status}"


def describe_recovery(message: str, came_from: str, to: str) -> str:
    """Returns the message of a recovery as it is true: an object that cannot rest where it came from is elsewhere."""
    return message if to == came_from else message.replace(RESTORED, f"set to {to}")
