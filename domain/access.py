"""Access policy: who may do what, where. `authorize` is the one question; roles answer it, after the denials.

Kept as a format of our own: a decision needs the path tree and the registry's kinds and actions, which a general
policy language would have to be given as data for every decision (docs/security.md has the comparison).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import Field, StringConstraints, model_validator

from domain import registry
from domain.errors import Category, Refused
from domain.exposure import READ
from domain.identities import Principal, ProofUse
from domain.model import FrozenModel, Request
from domain.paths import is_at_or_below, kind_of
from domain.validation import ObjectPath

ANYTHING = "*"  # any kind, any action; as a user: everybody who is not named

PolicyName = Annotated[str, StringConstraints(min_length=1, max_length=100)]
HINT = "ask the operator of the workers, who maintains RATCHET_POLICY_FILE"


@dataclass(frozen=True)
class Subject:
    """Who asks. `proven` tells a name with a verified proof from one that the client only claims."""

    name: str
    groups: tuple[str, ...] = ()
    proven: bool = False
    proof: ProofUse | None = None
    issuer: str = ""  # who vouched for the name
    token_groups: tuple[str, ...] = ()  # those of `groups` that only the issuer's token names

    def as_principal(self) -> Principal:
        """Returns what is stored of whoever asks, for programs that act for them later."""
        return Principal(name=self.name, proven=self.proven, issuer=self.issuer, groups=list(self.token_groups))


class Rule(FrozenModel):
    """Kinds, actions and paths that a role allows, or a denial forbids. Without `paths`, everywhere."""

    kinds: list[PolicyName] = Field(default=[ANYTHING], min_length=1)
    actions: list[PolicyName] = Field(default=[ANYTHING], min_length=1)
    paths: list[ObjectPath] = []

    @model_validator(mode="after")
    def _check_known_names(self) -> Rule:
        """Refuses unknown kinds and actions: they would silently allow, or forbid, nothing."""
        if unknown := [kind for kind in self.kinds if kind != ANYTHING and kind not in registry.KINDS]:
            raise ValueError(f"no such kind {unknown[0]!r}; kinds are: {', '.join(registry.KINDS)}")
        kinds = registry.KINDS if ANYTHING in self.kinds else self.kinds
        own = {verb.action for kind in kinds for verb in registry.KINDS[kind].verbs}
        actions = [*sorted(own), *sorted(registry.other_verbs() - own)]
        for action in self.actions:
            if action != ANYTHING and action not in actions:
                raise ValueError(f"no such action {action!r}; actions are: {', '.join(actions)}")
        return self

    def covers(self, verb: str, path: str) -> bool:
        """Tells whether the rule is about this verb on the object at this path; an empty path is everything."""
        kind = kind_of(path) if path else ""
        return (
            (ANYTHING in self.kinds or kind in self.kinds)
            and (ANYTHING in self.actions or verb in self.actions)
            and (not self.paths or any(is_at_or_below(path, prefix) for prefix in self.paths))
        )


class Role(Rule):
    """A role of the access policy. Whoever has a role may also read what the role is about."""

    kinds: list[PolicyName] = Field(min_length=1)
    actions: list[PolicyName] = Field(min_length=1)
    force: bool = False

    def allows(self, verb: str, path: str, force: bool = False) -> bool:
        """Tells whether the role allows this verb on the object at this path."""
        if verb == READ:
            return self.model_copy(update={"actions": [ANYTHING]}).covers(verb, path)
        return (self.force or not force) and self.covers(verb, path)


class Denial(Rule):
    """What some users or groups may not do, whatever their roles allow."""

    who: list[PolicyName] = Field(min_length=1)
    why: Annotated[str, StringConstraints(max_length=200)] = ""

    def forbids(self, subject: Subject, verb: str, path: str) -> bool:
        """Tells whether this denial is about the subject and what it asks for."""
        named = ANYTHING in self.who or subject.name in self.who or not set(self.who).isdisjoint(subject.groups)
        return named and self.covers(verb, path)


class Group(FrozenModel):
    """The roles of a group. Members are listed here, or given by RATCHET_IDENTITIES."""

    roles: list[PolicyName]
    members: list[PolicyName] = []


class AccessPolicy(FrozenModel):
    """The policy file. The user `*` stands for everybody who is not named; without it they may do nothing.

    Our own programs may do their own work without being named. A program that is named has only the roles it is given.
    """

    roles: dict[PolicyName, Role]
    users: dict[PolicyName, list[PolicyName]] = {}
    groups: dict[PolicyName, Group] = {}
    deny: list[Denial] = []
    connections: dict[PolicyName, list[PolicyName]] = {}  # by path: the clouds, or places, that it may use; `*`: others

    @model_validator(mode="after")
    def _check_roles_exist(self) -> AccessPolicy:
        given = {f"users.{user}": roles for user, roles in self.users.items()}
        given |= {f"groups.{name}": group.roles for name, group in self.groups.items()}
        for owner, roles in given.items():
            for role in roles:
                if role not in self.roles:
                    raise ValueError(f"{owner}: no such role {role!r}; roles are: {', '.join(self.roles)}")
        return self

    def authorize(self, subject: Subject, verb: str, path: str, force: bool = False) -> None:
        """Raises Refused unless the subject may do this: no denial forbids it, and a role allows it."""
        subject = self.with_groups(subject)
        if why := self._why_denied(subject, verb, path) or self._why_not_granted(subject, verb, path, force):
            who = subject.name or "somebody without a name"
            forced = " with force" if force else ""
            raise Refused(Category.FORBIDDEN, f"{who} may not {verb} {path or 'everywhere'}{forced}: {why}", HINT)

    def is_allowed(self, subject: Subject, verb: str, path: str) -> bool:
        """Tells whether the subject may do this, without force."""
        subject = self.with_groups(subject)
        return not (self._why_denied(subject, verb, path) or self._why_not_granted(subject, verb, path, False))

    def authorize_read(self, subject: Subject, path: str) -> None:
        """Raises Refused if there is nothing at or below this path that the subject may read."""
        if self._why_denied(self.with_groups(subject), READ, path) or not self.readable_paths(subject, path):
            self.authorize(subject, READ, path)

    def check_request(self, request: Request, subject: Subject) -> None:
        """Raises Refused unless the requester may make this request: by its roles, or as a program of ours.

        Nobody may create something in a cloud that its tenant may not use.
        """
        kind, program = registry.kind_at(request.path), registry.find_requesting_program(request)
        if program in self.users:
            self.authorize(Subject(program), request.action, request.path)
        elif not program:
            self.authorize(subject, request.action, request.path, request.force)
            if leads_to := kind.find_verb(request.action).leads_to:  # what programs will do later because of it
                for action, path in leads_to(request.path, kind.parse_spec(request.action, request.spec)):
                    self.authorize(subject, action, path)
        if kind.places_of and kind.table.is_creation(request.action):
            self.authorize_places(request.path, kind.places_of(kind.parse_spec(request.action, request.spec)))

    def authorize_principal(self, request: Request, principal: Subject) -> None:
        """Raises Refused unless the one for whom a program asks may have it done now."""
        self.authorize(principal, registry.verb_of(request).needed_right or request.action, request.path)

    def authorize_places(self, path: str, places: Iterable[str]) -> None:
        """Raises Refused unless the object at this path may use these places in clouds."""
        allowed = self._places_allowed_for(path)
        for place in places if allowed is not None else ():
            if not any(_place_matches(pattern, place) for pattern in allowed or ()):
                raise Refused(
                    Category.FORBIDDEN,
                    f"{path} may not use {place}: the policy's connections do not list it",
                    f"it may use: {', '.join(allowed or ()) or 'no cloud'}",
                )

    def readable_paths(self, subject: Subject, below: str) -> list[str]:
        """Returns the paths at or below one that the subject's roles are about; the path itself if one covers it."""
        prefixes: set[str] = set()
        for role in self._roles_of(self.with_groups(subject)):
            if not role.paths or any(is_at_or_below(below, path) for path in role.paths if below):
                return [below]
            prefixes.update(path for path in role.paths if not below or is_at_or_below(path, below))
        return sorted(path for path in prefixes if not any(is_at_or_below(path, other) for other in prefixes - {path}))

    def can_read_everything(self, subject: Subject) -> bool:
        """Tells whether nothing is hidden from the subject."""
        subject = self.with_groups(subject)
        denied = any(deny.forbids(subject, READ, "") or deny.paths or ANYTHING not in deny.kinds for deny in self.deny)
        return not denied and any(ANYTHING in role.kinds and not role.paths for role in self._roles_of(subject))

    def with_groups(self, subject: Subject) -> Subject:
        """Returns the subject with all its groups, those of the policy file included."""
        own = (name for name, group in self.groups.items() if subject.name in group.members)
        return Subject(subject.name, tuple(dict.fromkeys((*subject.groups, *own))), subject.proven)

    def _roles_of(self, subject: Subject) -> list[Role]:
        return [self.roles[name] for name in self.role_names(subject)]

    def role_names(self, subject: Subject) -> list[str]:
        """Returns the names of the subject's roles, its own and its groups'."""
        groups = [self.groups[name].roles for name in self.with_groups(subject).groups if name in self.groups]
        own = self.users.get(subject.name)
        if own is None and not groups:
            return self.users.get(ANYTHING, [])
        return list(dict.fromkeys([*(own or []), *(role for roles in groups for role in roles)]))

    def _why_denied(self, subject: Subject, verb: str, path: str) -> str:
        for denial in self.deny:
            if denial.forbids(subject, verb, path):
                return f"a denial forbids it{f': {denial.why}' if denial.why else ''}"
        return ""

    def _why_not_granted(self, subject: Subject, verb: str, path: str, force: bool) -> str:
        if any(role.allows(verb, path, force) for role in self._roles_of(subject)):
            return ""
        return f"{_describe_roles(self.role_names(subject))} does not allow it"

    def _places_allowed_for(self, path: str) -> list[str] | None:
        """Returns the places that a path may use, by the longest path listed that covers it; None if all."""
        covering = [prefix for prefix in self.connections if is_at_or_below(path, prefix)]
        if covering:
            return self.connections[max(covering, key=len)]
        return self.connections.get(ANYTHING)


def judge_sender(policy: AccessPolicy | None, request: Request, sender: Subject) -> None:
    """Raises Refused unless the sender may make this request. None: all may.

    Nobody but a program of ours asks on behalf of somebody else.
    """
    if request.on_behalf_of and not registry.find_requesting_program(request):
        who = request.requested_by or "somebody without a name"
        raise Refused(
            Category.FORBIDDEN,
            f"{who} may not {request.action} {request.path} on behalf of {request.on_behalf_of}",
            "only our programs ask on behalf of others: leave on_behalf_of out",
        )
    if policy:
        policy.check_request(request, sender)


def _place_matches(pattern: str, placement: str) -> bool:
    """Tells whether a cloud (`gcp`) or a pattern of places (`gcp/europe-*`) covers a placement."""
    return pattern == placement.partition("/")[0] or fnmatchcase(placement, pattern)


def _describe_roles(names: Iterable[str]) -> str:
    roles = list(names)
    if not roles:
        return "the policy, which gives no role,"
    return f"the role {roles[0]}" if len(roles) == 1 else f"none of the roles {', '.join(roles)}"
