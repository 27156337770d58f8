"""Access policy: roles allow actions on kinds at or below paths, and users have roles.

A request carries its user's name as the client gives it. So a policy stops mistakes, not attackers: whoever can write
to the Temporal namespace can give another name.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints, model_validator

from domain import registry
from domain.errors import Category, Refused
from domain.fields import ObjectPath
from domain.model import Model, Request

ANYTHING = "*"  # any kind, any action; as a user: everybody who is not named

PolicyName = Annotated[str, StringConstraints(min_length=1, max_length=100)]


class Role(Model):
    """A role of the access policy: kinds, actions and paths that it allows. Without `paths`, everywhere."""

    kinds: list[PolicyName] = Field(min_length=1)
    actions: list[PolicyName] = Field(min_length=1)
    paths: list[ObjectPath] = []
    force: bool = False

    @model_validator(mode="after")
    def _check_known_names(self) -> Role:
        """Refuses unknown kinds and actions: they would silently allow nothing."""
        if unknown := [kind for kind in self.kinds if kind != ANYTHING and kind not in registry.KINDS]:
            raise ValueError(f"no such kind {unknown[0]!r}; kinds are: {', '.join(registry.KINDS)}")
        kinds = registry.KINDS if ANYTHING in self.kinds else self.kinds
        actions = {verb.action for kind in kinds for verb in registry.KINDS[kind].verbs}
        for action in self.actions:
            if action != ANYTHING and action not in actions:
                raise ValueError(f"no such action {action!r}; actions are: {', '.join(sorted(actions))}")
        return self

    def allows_request(self, request: Request) -> bool:
        """Tells whether the role allows this request."""
        kind = registry.kind_at(request.path).name
        return (
            (ANYTHING in self.kinds or kind in self.kinds)
            and (ANYTHING in self.actions or request.action in self.actions)
            and (self.force or not request.force)
            and (not self.paths or any(_path_covers(path, request.path) for path in self.paths))
        )


class AccessPolicy(Model):
    """The policy file. The user `*` stands for everybody who is not named; without it they may do nothing.

    Our own programs may do their own work without being named. A program that is named has only the roles it is given.
    """

    roles: dict[PolicyName, Role]
    users: dict[PolicyName, list[PolicyName]]

    @model_validator(mode="after")
    def _check_roles_exist(self) -> AccessPolicy:
        for user, roles in self.users.items():
            for role in roles:
                if role not in self.roles:
                    raise ValueError(f"users.{user}: no such role {role!r}; roles are: {', '.join(self.roles)}")
        return self

    def check_request(self, request: Request) -> None:
        """Raises Refused if no role of the requester allows this request."""
        names = self.users.get(request.requested_by, self.users.get(ANYTHING, []))
        if request.requested_by not in self.users and _is_from_own_program(request):
            return
        if any(self.roles[name].allows_request(request) for name in names):
            return
        who = request.requested_by or "somebody without a name"
        force = " with force" if request.force else ""
        raise Refused(
            Category.NOT_ALLOWED,
            f"{who} may not {request.action} {request.path}{force}: {_having(names)} does not allow it",
            "ask the operator of the workers, who maintains RATCHET_POLICY_FILE",
        )


def _is_from_own_program(request: Request) -> bool:
    """Tells whether one of our programs requests its own work; an object that does gives its path as its name."""
    signed = request.requested_by
    name = signed.split(":")[-2] if ":" in signed else signed
    return not request.force and name in registry.kind_at(request.path).find_verb(request.action).programs


def _path_covers(prefix: str, path: str) -> bool:
    """Tells whether `path` is at or below `prefix`; `ns:a` does not cover `ns:ab`."""
    return path == prefix or path.startswith(f"{prefix}:")


def _having(names: list[str]) -> str:
    if not names:
        return "the policy, which gives no role,"
    return f"the role {names[0]}" if len(names) == 1 else f"none of the roles {', '.join(names)}"
