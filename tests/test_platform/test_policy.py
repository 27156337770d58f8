"""The policy file: every right that it gives, and every one that it does not."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from domain import registry
from domain.access import AccessPolicy, Subject
from domain.errors import Category, Refused
from domain.kinds import InternalProgram, Verb
from domain.model import Request
from tests.test_platform.site import ROOT
from workers.access import load_policy

EXAMPLE = ROOT / "examples" / "policy.yaml"
WEB, OTHER = "ns:web:mci:shop", "ns:webshop:mci:shop"
PATHS = {WEB: "mci", f"{WEB}:vm:a-1": "vm", OTHER: "mci", f"{OTHER}:vm:a-1": "vm"}
SWITCHING = {"suspend", "resume", "reboot"}


def may(user: str, path: str, action: str, force: bool) -> bool:
    """What examples/policy.yaml means, said once more in other words."""
    if user == "root":
        return True
    if force or user not in ("night-shift", "wanda"):
        return False
    return action in SWITCHING or (user == "wanda" and path.startswith(f"{WEB}") and path.split(":")[1] == "web")


REQUESTS = [
    (user, path, verb.action, force)
    for user, (path, kind), force in product(("root", "night-shift", "wanda", "eve", ""), PATHS.items(), (False, True))
    for verb in registry.KINDS[kind].verbs
]


def test_every_right_is_given_and_no_other_is() -> None:
    policy = load_policy(str(EXAMPLE))
    found = {request: _allowed(policy, *request) for request in REQUESTS}
    assert found == {request: may(*request) for request in REQUESTS}
    assert set(found.values()) == {True, False}


def test_pausing_a_cloudspace_is_for_administrators_in_the_example() -> None:
    policy, space = load_policy(str(EXAMPLE)), "account:acme:cloudspace:dev"
    firewall = {"pause", "resume", "reset"}
    for verb in registry.KINDS["cloudspace"].verbs:
        mine = verb.action not in {*firewall, "discard"}  # orphans are nobody's: they are for administrators too
        assert _allowed(policy, "acme-desk", space, verb.action, False) is mine
        assert _allowed(policy, "network-desk", space, verb.action, False) is (verb.action in firewall)
        assert _allowed(policy, "root", space, verb.action, False)
    for kind, path in {"machine": f"{space}:machine:db", "disk": "account:acme:disk:d1"}.items():
        offered = {verb.action for verb in registry.KINDS[kind].verbs if not verb.is_internal}
        may = {action for action in offered if _allowed(policy, "acme-desk", path, action, False)}
        assert offered - may == ({"migrate"} if kind == "machine" else set())
    assert not _allowed(policy, "acme-desk", "account:other:cloudspace:dev", "delete", False)


SPACE = "account:acme:cloudspace:dev"
AT = {  # a path of each kind that programs of ours ask something of
    "orphan": f"{WEB}:vm:a-1:orphan:aws-i-1",
    "app": "org:acme:cloudlet:berlin:cluster:c1:app:shop",
    "cluster": "org:acme:cloudlet:berlin:cluster:c1",
    "account": "account:acme",
    "cloudspace": SPACE,
    "machine": f"{SPACE}:machine:db",
    "disk": "account:acme:disk:d1",
    "image": "image:ubuntu",
    "node": "node:cpu-01",
    "host": "pool:main:host:h1",
    "lease": "project:p1:lease:l1",
    "event": "project:p1:lease:l1:event:before_end_lease",
    "mci": WEB,
}
SIGNED = {  # objects sign with their paths
    "node": "node:cpu-01",
    "cloudlet": "org:acme:cloudlet:berlin",
    "lease": "project:p1:lease:l1",
    "policy": "org:acme:policy:follow",
}
BY_RIGHT = [
    (SIGNED.get(program, program), kind.name, verb.action)
    for kind in registry.KINDS.values()
    for verb in kind.verbs
    for program in verb.programs
]
SHIPPED = [file for file in (ROOT / "examples").glob("*.yaml") if "\nusers:" in file.read_text()]
NOBODY = AccessPolicy.model_validate({"roles": {}, "users": {}})


def test_every_program_of_ours_has_something_that_it_may_do() -> None:
    assert EXAMPLE in SHIPPED
    assert {name for name, _, _ in BY_RIGHT} == {*InternalProgram, *SIGNED.values()}
    assert {(InternalProgram.CLOCK, "lease", "start"), (InternalProgram.CLOCK, "event", "announce")} <= set(BY_RIGHT)
    assert (InternalProgram.SELF_HEALING, "orphan", "remove") in BY_RIGHT
    binned = {kind for name, kind, action in BY_RIGHT if (name, action) == (InternalProgram.RECYCLE_BIN, "destroy")}
    assert binned == {"account", "cloudspace", "machine", "disk", "image"}
    swept = {kind for kind in registry.KINDS if registry.may_sweep_leftovers(kind)}
    healed = {kind for name, kind, _ in BY_RIGHT if name == InternalProgram.SELF_HEALING}
    assert healed == swept | {"host"}  # one that its site has given up
    assert swept == {"orphan", "cloudspace", "machine", "disk", "image", "node"}


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: str(file.name))
def test_every_policy_that_is_shipped_lets_our_own_programs_do_their_work(file: Path) -> None:
    policy = load_policy(str(file))
    refused = [each for each in BY_RIGHT if not _allowed(policy, each[0], AT[each[1]], each[2], False)]
    assert refused == []


def test_programs_of_ours_may_do_what_they_are_there_for_and_no_more_whatever_a_policy_forgot() -> None:
    for name in dict.fromkeys(name for name, _, _ in BY_RIGHT):
        for kind, path in AT.items():
            for verb in registry.KINDS[kind].verbs:
                wanted = (name, kind, verb.action) in BY_RIGHT
                assert _allowed(NOBODY, name, path, verb.action, False) is wanted, (name, path, verb.action)
                assert not _allowed(NOBODY, name, path, verb.action, True)


def test_a_policy_that_names_a_program_of_ours_decides_what_it_may_do() -> None:
    policy = AccessPolicy.model_validate({"roles": {}, "users": {"recycle bin": [], "lease": []}})
    assert not _allowed(policy, "recycle bin", AT["disk"], "destroy", False)
    assert not _allowed(policy, SIGNED["lease"], WEB, "delete", False)


def test_what_programs_do_to_the_objects_of_people_they_do_on_behalf_of_somebody() -> None:
    own = {(name, kind, action) for name, kind, action in BY_RIGHT if not _verb(kind, action).on_behalf}
    assert own == {
        *((name, kind, action) for name, kind, action in BY_RIGHT if name in {*InternalProgram} and action != "start")
    }
    assert _verb("lease", "start").needed_right == "create"  # nobody can ask for a start


def _verb(kind: str, action: str) -> Verb:
    return registry.KINDS[kind].find_verb(action)


def _allowed(policy: AccessPolicy, user: str, path: str, action: str, force: bool) -> bool:
    try:
        policy.check_request(Request(path=path, action=action, requested_by=user, force=force), Subject(user))
    except Refused as refused:
        return refused.category is not Category.FORBIDDEN
    return True


@pytest.mark.parametrize(
    ("user", "force", "words"),
    [
        ("night-shift", False, f"night-shift may not terminate {WEB}: the role operator does not allow it"),
        ("wanda", True, f"wanda may not terminate {WEB} with force: none of the roles operator, team-web does"),
        ("eve", False, f"eve may not terminate {WEB}: the policy, which gives no role, does not allow it"),
        ("", False, f"somebody without a name may not terminate {WEB}"),
    ],
)
def test_a_refusal_says_who_what_and_why(user: str, force: bool, words: str) -> None:
    request = Request(path=WEB, action="terminate", requested_by=user, force=force)
    with pytest.raises(Refused) as caught:
        load_policy(str(EXAMPLE)).check_request(request, Subject(user))
    assert words in caught.value.message
    assert "RATCHET_POLICY_FILE" in caught.value.hint


def test_without_a_star_nobody_else_may_do_anything() -> None:
    policy = AccessPolicy.model_validate(
        {"roles": {"all": {"kinds": ["*"], "actions": ["*"]}}, "users": {"ann": ["all"]}}
    )
    assert _allowed(policy, "ann", WEB, "suspend", False)
    assert not _allowed(policy, "bob", WEB, "suspend", False)


ROLE = "roles: {r: {kinds: [mci], actions: [suspend]}}\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "roles: Field required"),
        ("roles: [", "is not YAML"),
        ("- a list", "Input should be a valid dictionary"),
        (ROLE + "users: {ann: [q]}", "users.ann: no such role 'q'; roles are: r"),
        (ROLE + "users: {}\nuser: {}", "user: there is no such field"),
        ("roles: {r: {kinds: [rocket], actions: [suspend]}}\nusers: {}", "no such kind 'rocket'; kinds are: mci"),
        ("roles: {r: {kinds: [mci], actions: [fly]}}\nusers: {}", "no such action 'fly'; actions are: create"),
        ("roles: {r: {kinds: [mci], actions: []}}\nusers: {}", "at least 1 item"),
        ("roles: {r: {kinds: [mci], actions: [suspend], paths: [web]}}\nusers: {}", "bad path 'web'"),
        ("roles: {r: {kinds: [mci], actions: [suspend], forced: true}}\nusers: {}", "there is no such field"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_what_is_wrong(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(text)
    with pytest.raises(Refused) as caught:
        load_policy(str(file))
    assert words in caught.value.message
    assert str(file) in caught.value.message
    assert "examples/policy.yaml" in caught.value.hint


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="cannot be read: No such file"):
        load_policy(str(tmp_path / "policy.yaml"))
