"""Definitions: what is accepted, and the errors of the rest."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from domain.errors import Category, Refused
from domain.services.definition import MAX_PARTS, Node
from domain.systems.rules import StoredPart, check_definition_fits, node_path, tree_path
from domain.systems.specs import DeploySpec, SystemSpec, is_service, stored_spec, walk_nodes
from domain.validation import describe_validation_errors
from tests.cases import every_case

RUN = {"command": ["run"]}
SHOP: dict[str, Any] = {
    "parts": [
        {"name": "web", **RUN, "after": ["db"]}, {"name": "db", **RUN}, {"name": "in", "parts": [{"name": "x", **RUN}]},
    ],
}  # fmt: skip


def test_a_tree_is_flattened_with_its_paths() -> None:
    found = dict(walk_nodes("system:shop", Node.model_validate(SHOP)))
    assert list(found) == ["system:shop", "system:shop:web", "system:shop:db", "system:shop:in", "system:shop:in:x"]
    assert [is_service(stored_spec(node)) for node in found.values()] == [False, True, True, False, True]


def test_what_is_kept_of_a_node_is_its_own_and_makes_the_same_node_again() -> None:
    node = Node.model_validate({"name": "web", **RUN, "instances": 3, "health": {"tcp": True}, "port": 8_080})
    assert stored_spec(node) == {"command": ["run"], "instances": 3, "health": {"tcp": True}, "port": 8_080}
    assert stored_spec(Node.model_validate(stored_spec(node))) == stored_spec(node)
    assert stored_spec(Node.model_validate(SHOP)) == {"parts": []}


@every_case(
    ("definition", "complaint"),
    [
        ({}, "say parts"),
        ({"parts": [], "command": ["x"]}, "say parts"),
        ({"parts": [], "image": "y"}, "say parts"),
        ({"parts": [], "instances": 2}, "a system has parts and jobs, not instances"),
        ({"command": []}, "at least 1 item"),
        ({"command": ["a\0b"]}, "NUL"),
        ({"parts": [RUN]}, "name"),
        ({"parts": [{"name": "a", **RUN}, {"name": "a", **RUN}]}, "a occurs more than once"),
        ({"parts": [{"name": "../a", **RUN}]}, "bad name"),
        ({"parts": [{"name": "a:b", **RUN}]}, "bad name"),
        ({"parts": [{"name": "a", **RUN, "after": ["b"]}]}, "there is no b"),
        ({"parts": [{"name": "a", **RUN, "after": ["a"]}]}, "wait for each other: a after a"),
        ({"parts": [{"name": "a", **RUN, "after": ["b"]}, {"name": "b", **RUN, "after": ["a"]}]}, "wait for each"),
        ({**RUN, "instances": -1}, "greater than or equal to 0"),
        ({**RUN, "instances": 1_000}, "less than or equal"),
        ({**RUN, "maxUnavailable": 0, "maxSurge": 0}, "nothing could ever be replaced"),
        ({**RUN, "environment": {"A=B": "x"}}, "no name of a variable"),
        ({**RUN, "environment": {"PORT": "1"}}, "it cannot be set"),
        ({**RUN, "environment": {"A": "\0"}}, "NUL"),
        ({**RUN, "port": 80}, "greater than or equal to 1024"),
        ({**RUN, "health": {}}, "exactly one of http, tcp and command"),
        ({**RUN, "port": 8_080, "health": {"http": "/", "tcp": True}}, "exactly one of http, tcp and command"),
        ({**RUN, "health": {"http": "/"}}, "needs a port"),
        ({**RUN, "port": 8_080, "health": {"http": "/ HTTP/1.1\r\nX: y"}}, "pattern"),
        ({**RUN, "resources": {"memory": 1}}, "greater than or equal to 16"),
        ({**RUN, "unheard": 1}, "there is no such field"),
    ],
)  # fmt: skip
def test_a_bad_definition_says_what_is_wrong(definition: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError) as caught:
        DeploySpec.model_validate({"definition": definition})
    assert complaint in describe_validation_errors(caught.value)


def test_a_port_is_taken_by_one_service_only() -> None:
    twice = {
        "parts": [{"name": "a", **RUN, "port": 8_080}, {"name": "b", "parts": [{"name": "c", **RUN, "port": 8_080}]}]
    }
    with pytest.raises(ValidationError, match="port 8080"):
        DeploySpec.model_validate({"definition": twice})


def test_a_deploy_is_bounded() -> None:
    wide = {"parts": [{"name": f"p{n}", **RUN} for n in range(MAX_PARTS)]}
    with pytest.raises(ValidationError, match="too many"):
        DeploySpec.model_validate({"definition": wide})
    deep: dict[str, Any] = {"name": "x", **RUN}
    for _ in range(13):
        deep = {"name": "x", "parts": [deep]}
    with pytest.raises(ValidationError, match="deeper"):
        DeploySpec.model_validate({"definition": deep})
    with pytest.raises(ValidationError):
        DeploySpec.model_validate({"definition": RUN, "deadline": 0})


def test_only_backends_that_there_are_can_be_named() -> None:
    assert SystemSpec().backend == "simulated"
    with pytest.raises(ValidationError):
        SystemSpec.model_validate({"backend": "cloud"})


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("/", "system:shop"),
        ("/a", "system:shop:a"),
        ("/a/b/C", "system:shop:a:b:C"),
        ("/a.b/c-d", "system:shop:a.b:c-d"),
    ],
)
def test_a_tree_path_and_back(text: str, path: str) -> None:
    assert node_path("system:shop", text) == path
    assert tree_path(path) == text
    assert tree_path(f"{path}::deploy:d1") == text


@every_case(
    ("text", "rule"),
    [
        ("", "begins with a slash"),
        ("a", "begins with a slash"),
        ("a/b", "begins with a slash"),
        ("/a/", "does not end with a slash"),
        ("//", "does not end with a slash"),
        ("/a//b", "no part of it is empty"),
        ("//a", "no part of it is empty"),
        ("/a b", "bad name"),
        ("/..", "bad name"),
        ("/a:b", "bad name"),
        ("/a/\0", "bad name"),
        ("/" + "/".join(["x" * 60] * 11), "too long"),
    ],
)
def test_a_malformed_tree_path_is_refused(text: str, rule: str) -> None:
    with pytest.raises(Refused) as caught:
        node_path("system:shop", text)
    assert caught.value.category is Category.INVALID
    assert rule in caught.value.message


SERVICE, SYSTEM = Node.model_validate(RUN), Node.model_validate(SHOP)
INNER = StoredPart("system:shop:in", "stable", {"parts": []})


@pytest.mark.parametrize(
    ("path", "node", "backend", "parent", "at_root", "complaint"),
    [
        ("system:shop", SERVICE, "simulated", None, True, "must be a system"),
        ("system:shop:no:x", SERVICE, "simulated", None, False, "there is no system:shop:no"),
        ("system:shop:a:x", SERVICE, "simulated", StoredPart("system:shop:a", "stable", RUN), False, "is a service"),
        ("system:shop:in:x", SERVICE.model_copy(update={"name": "y"}), "simulated", INNER, False, "named y"),
        ("system:shop:in:x", Node(image="nginx"), "process", INNER, False, "not images: system:shop:in:x"),
        ("system:shop:in:x", SERVICE, "container", INNER, False, "runs images: system:shop:in:x has none"),
        ("system:shop:in:x", Node(command=["x"], readOnly=True), "process", INNER, False, "are of containers"),
        ("system:shop:in:x", Node(command=["x"], network="host"), "process", INNER, False, "are of containers"),
    ],
)
def test_a_definition_that_does_not_fit_its_place_is_refused(
    path: str, node: Node, backend: str, parent: StoredPart | None, at_root: bool, complaint: str
) -> None:
    with pytest.raises(Refused, match=complaint) as caught:
        check_definition_fits(path, node, backend, parent, at_root)
    assert caught.value.hint


def test_a_definition_that_fits_is_let_in() -> None:
    check_definition_fits("system:shop", SYSTEM, "process", None, True)
    check_definition_fits("system:shop:in:x", SERVICE.model_copy(update={"name": "x"}), "process", INNER, False)
    check_definition_fits("system:shop:in:x", Node(image="nginx"), "simulated", INNER, False)
    check_definition_fits("system:shop:in:x", Node(image="nginx", command=["x"]), "container", INNER, False)


JOBS = [{"name": "migrate", "command": ["migrate"], "environment": {"A": "1"}}]


def test_jobs_of_a_system_can_be_written_and_are_kept() -> None:
    node = Node.model_validate({"parts": [{"name": "web", **RUN}], "jobs": JOBS})
    assert stored_spec(node) == {"parts": [], "jobs": JOBS}
    assert Node.model_validate(stored_spec(node)).jobs == node.jobs


@pytest.mark.parametrize(
    ("definition", "complaint"),
    [
        ({**RUN, "jobs": JOBS}, "jobs are of a system"),
        ({"parts": [], "jobs": [{"name": "a"}]}, "a command or an image"),
        ({"parts": [{"name": "migrate", **RUN}], "jobs": JOBS}, "names of parts and jobs must differ: migrate"),
        ({"parts": [], "jobs": [*JOBS, *JOBS]}, "names of parts and jobs must differ: migrate"),
    ],
)
def test_bad_jobs_say_what_is_wrong(definition: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        Node.model_validate(definition)
