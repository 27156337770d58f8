"""Random specs of every kind and random files: what is invalid is refused with our own error."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from client import encryption
from domain import registry
from domain.edge.faults import CrmFaults
from domain.errors import Refused
from domain.faults import FaultScript
from domain.model import Request
from starter.kinds import read_spec_file
from tests.cases import every_case
from tests.fuzz.inputs import HOSTILE, drawn, mappings, spoilt, texts, torn, values
from workers import access, connections

EXAMPLES = Path(__file__).parents[2] / "examples"
VERBS = [(kind, verb) for kind in registry.KINDS.values() for verb in kind.verbs]

# What each action takes, if there is an example of it: the start of what is spoilt.
SOUND = {
    "mci": "mci-demo.yaml",
    "lease": "lease-demo.yaml",
    "policy": "policy-demo.yaml",
    "system": "system-demo.yaml",
    "cloudlet": "cloudlet-demo.yaml",
}
KEYS = "active: a\nkeys:\n  a: " + "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=\n"


def example(kind: registry.Kind) -> dict[str, Any]:
    found = yaml.safe_load((EXAMPLES / SOUND[kind.name]).read_text()) if kind.name in SOUND else {}
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(("kind", "verb"), VERBS, ids=[f"{kind.name} {verb.action}" for kind, verb in VERBS])
def test_a_spec_is_taken_or_refused(kind: registry.Kind, verb: registry.Verb, many: int) -> None:
    path = ":".join(f"{word}:x" for word in kind.scope)
    fields = dict.fromkeys(verb.spec.model_fields, 1) if verb.spec else {}
    tries = st.one_of(mappings, spoilt(fields), spoilt(example(kind)))
    for spec in drawn(tries, 12 * many):
        with suppress(Refused):
            found = registry.parse_spec(Request(path=path, action=verb.action, spec=spec))
            assert found is None or isinstance(found, BaseModel)


@every_case("text", HOSTILE, ids=ascii)
def test_a_hostile_path_is_refused_before_anything_is_made_of_it(text: str) -> None:
    for path in (text, f"ns:{text}", f"ns:default:mci:{text}"):
        try:
            kind = registry.kind_at(path)
        except Refused:
            continue
        assert path.isascii()
        assert (kind.name, path.split(":")[-2]) in {("mci", "mci"), ("cloudlet", "cloudlet")}


def a_spec(file: Path) -> object:
    return read_spec_file(str(file))


def faults(file: Path) -> object:
    from starter.edge.crm import _read_faults

    return _read_faults(str(file))


READERS: list[tuple[str, Callable[[Path], object], str]] = [
    ("spec", a_spec, (EXAMPLES / "mci-demo.yaml").read_text()),
    ("crm faults", faults, (EXAMPLES / "crm-faults.yaml").read_text()),
    ("connections", connections.load_connections, (EXAMPLES / "connections-aws.yaml").read_text()),
    ("policy", lambda file: access.load_policy(str(file)), (EXAMPLES / "policy.yaml").read_text()),
    ("keys", lambda file: encryption.load_keys(str(file)), KEYS),
]


@pytest.mark.parametrize(("name", "read", "sound"), READERS, ids=[reader[0] for reader in READERS])
def test_a_file_is_taken_or_refused(
    name: str, read: Callable[[Path], object], sound: str, tmp_path: Path, many: int
) -> None:
    file = tmp_path / "given.yaml"
    file.touch(0o600)
    document = yaml.safe_load(sound)
    tries = st.one_of(texts, torn(sound), spoilt(document), values, mappings, st.binary(max_size=60))
    bomb = "n0: &n0 [x, x]\n" + "\n".join(f"n{n}: &n{n} [*n{n - 1}, *n{n - 1}]" for n in range(1, 40))
    known = ["[" * 3_000, "{" * 3_000, "a: " * 2_000, bomb, "&a [*a]", "\ufeff", "!!python/object:os.system x"]
    for each in [*known, *drawn(tries, 60 * many)]:
        file.write_bytes(written(each))
        with suppress(Refused):
            read(file)


def written(given: object) -> bytes:
    if isinstance(given, bytes):
        return given
    text = given if isinstance(given, str) else json.dumps(given)
    return text.encode("utf-8", "surrogatepass")


@pytest.mark.parametrize("model", [FaultScript, CrmFaults])
def test_a_fault_script_is_taken_or_refused(model: type[BaseModel], many: int) -> None:
    for each in drawn(st.one_of(values, spoilt({"faults": [{"kind": "fail", "vm": "*", "verb": "*"}]})), 60 * many):
        with suppress(ValidationError):
            model.model_validate(each)
