"""Broken set-ups: the doctor names each fault and says how to correct it."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest
from google.protobuf.duration_pb2 import Duration
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client

from client import queries
from client.actions import ActionClient
from client.payloads import data_converter
from domain.wire import ACTIONS_QUEUE
from starter import doctor
from starter.errors import ExitCode
from starter.stack import search_attribute_types
from store import engine
from store.migrate import newest_schema_version
from tests.patience import PATIENCE
from tests.stack import ActionStack
from tests.test_cli.shell import Cli
from tests.test_platform import gates
from tests.test_platform.gates import Authority
from tests.test_platform.test_payloads import NEW, OLD, write
from workers import embedded
from workers.plugin import temporal_plugin
from workers.service import WorkerService
from workers.settings import WorkerSettings


@dataclass
class Clinic:
    """A namespace of its own on the session's server, in which workers can be as ill as one likes."""

    cli: Cli
    address: str
    namespace: str
    home: Path

    async def ill(self, words: str = "doctor") -> dict[str, dict[str, str]]:
        """What the doctor finds wrong, by what it is about."""
        ran = await self.cli(f"{words} -o json")
        found = {load["about"]: load for load in json.loads(ran.out) if load["mend"]}
        assert (ran.code == ExitCode.DONE) is not bool(found)
        return found

    @asynccontextmanager
    async def worker(self, *queues: str, **settings: str) -> AsyncIterator[WorkerService]:
        given = WorkerSettings.model_validate({"home": self.home, **settings})
        client = await Client.connect(
            self.address, namespace=self.namespace, plugins=[temporal_plugin(payloads=data_converter(given))]
        )
        service = WorkerService(client, given)
        service.prepare_databases()
        with pytest.MonkeyPatch.context() as patch:
            if "build" not in settings:  # it answers, however slow; one whose build is not promoted never does
                patch.setattr(doctor, "READ_SECONDS", PATIENCE)
            async with service.serve_queues(queues):
                await self._until_polled(ActionClient(client), queues or service.queues)
                yield service
        await service.close()

    async def _until_polled(self, asking: ActionClient, queues: Sequence[str]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not all([await asking.count_pollers(queue) for queue in queues]):
                await asyncio.sleep(0.05)


@pytest.fixture(scope="module")
async def namespaces(on_sqlite: ActionStack) -> list[str]:
    """Two: one that is set up, and one in which nothing is."""
    client = on_sqlite.client
    names = [f"clinic-{uuid.uuid4().hex[:8]}" for _ in range(2)]
    for name, days in zip(names, (doctor.RETENTION_DAYS, doctor.RETENTION_DAYS - 1), strict=True):
        kept = Duration()
        kept.FromTimedelta(timedelta(days=days))
        request = RegisterNamespaceRequest(namespace=name, workflow_execution_retention_period=kept)
        await client.workflow_service.register_namespace(request)
    attributes = AddSearchAttributesRequest(namespace=names[0], search_attributes=search_attribute_types())
    await client.operator_service.add_search_attributes(attributes)
    return names


@pytest.fixture
def clinic(monkeypatch: pytest.MonkeyPatch, temporal_address: str, tmp_path: Path, namespaces: list[str]) -> Clinic:
    for name in [name for name in os.environ if name.startswith(("TEMPORAL_", "RATCHET_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TEMPORAL_ADDRESS", temporal_address)
    monkeypatch.setenv("TEMPORAL_NAMESPACE", namespaces[0])
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path))
    monkeypatch.setattr(queries, "POLLERS_SECONDS", 0.3)  # who comes is there already: see Clinic.worker
    monkeypatch.setattr(doctor, "READ_SECONDS", 1)
    return Clinic(Cli(monkeypatch), temporal_address, namespaces[0], tmp_path)


async def test_a_sound_set_up_is_found_sound(clinic: Clinic) -> None:
    async with clinic.worker():
        assert await clinic.ill() == {}


async def test_0_a_namespace_that_forgets_within_a_week(
    clinic: Clinic, namespaces: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_NAMESPACE", namespaces[1])
    found = (await clinic.ill())["namespace"]
    assert ("keeps closed actions for 6 days" in found["found"], "--retention 90d" in found["mend"]) == (True, True)


async def test_1_no_server(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    found = (await clinic.ill())["temporal"]
    assert ("connection refused" in found["found"], "starter up" in found["mend"]) == (True, True)


async def test_2_a_namespace_that_there_is_not(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPORAL_NAMESPACE", "nowhere")
    found = (await clinic.ill())["temporal"]
    assert (found["found"], "TEMPORAL_NAMESPACE" in found["mend"]) == ("Temporal has no namespace 'nowhere'", True)


async def test_3_a_profile_that_there_is_not(clinic: Clinic) -> None:
    found = (await clinic.ill("--profile prod doctor"))["temporal"]
    assert "Profile 'prod' not found" in found["found"]
    assert "TEMPORAL_CONFIG_FILE" in found["mend"]


async def test_4_an_expired_certificate(clinic: Clinic, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    expired = Authority(tmp_path, "authority").issue("client", days=-1)
    monkeypatch.setenv("TEMPORAL_TLS_CLIENT_CERT_PATH", str(expired.cert))
    monkeypatch.setenv("TEMPORAL_TLS_CLIENT_KEY_PATH", str(expired.key))
    found = (await clinic.ill())["temporal"]
    assert ("the client certificate expired on" in found["found"], "renew" in found["mend"]) == (True, True)


async def test_5_a_wrong_api_key(clinic: Clinic, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    async with gates.turning_away(gates.context(authority.issue("server")), 16, "Request unauthorized.") as door:
        monkeypatch.setenv("TEMPORAL_ADDRESS", door)
        monkeypatch.setenv("TEMPORAL_API_KEY", "planted")
        monkeypatch.setenv("TEMPORAL_TLS_SERVER_CA_CERT_PATH", str(authority.file))
        found = (await clinic.ill())["temporal"]
    assert ("does not accept our API key" in found["found"], "TEMPORAL_API_KEY" in found["mend"]) == (True, True)


async def test_6_search_attributes_that_are_missing_or_of_another_type(
    clinic: Clinic, client: Client, namespaces: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_NAMESPACE", namespaces[1])
    found = (await clinic.ill())["search attributes"]
    assert ("missing: ObjectPath" in found["found"], found["mend"]) == (True, "starter setup")
    wrong = {"Progress": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD}
    request = AddSearchAttributesRequest(namespace=namespaces[1], search_attributes=wrong)
    await client.operator_service.add_search_attributes(request)
    found = (await clinic.ill())["search attributes"]
    assert ("Progress should be Int" in found["found"], "--name Progress" in found["mend"]) == (True, True)


async def test_7_a_queue_that_nobody_serves(
    clinic: Clinic, namespaces: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_NAMESPACE", namespaces[1])  # Temporal remembers for minutes who polled
    async with replace(clinic, namespace=namespaces[1]).worker(ACTIONS_QUEUE):
        ran = await clinic.cli("doctor")
    assert ran.code == ExitCode.UNREACHABLE
    assert "nobody polls cloud-aws" in ran.out
    assert "nobody polls actions" not in ran.out
    assert "starter worker --queues cloud-aws" in ran.err


async def test_8_a_store_that_does_not_answer(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "BUSY_TIMEOUT_SECONDS", 0.1)
    async with clinic.worker():
        other = sqlite3.connect(clinic.home / "inventory.db", isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        for seconds in (1, 10, PATIENCE):  # it is tried for as long as there is time: just enough for one try
            monkeypatch.setattr(doctor, "READ_SECONDS", seconds)
            if "database is locked" in (found := (await clinic.ill())["store"])["found"]:
                break
        other.close()
    assert "database is locked" in found["found"]


async def test_9_a_schema_that_the_workers_do_not_know(clinic: Clinic) -> None:
    async with clinic.worker():
        with sqlite3.connect(clinic.home / "inventory.db") as other:
            other.execute("UPDATE alembic_version SET version_num = '9999'")
        other.close()
        found = (await clinic.ill())["store"]
    assert f"has schema 9999, not {newest_schema_version()}" in found["found"]
    assert found["mend"] == "starter migrate"


async def test_10_a_key_that_is_not_the_workers(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    async with clinic.worker(keys_file=write(clinic.home / "theirs", "a", a=OLD)):
        found = (await clinic.ill())["store"]
        assert "the worker takes only what is encrypted with its keys" in found["found"]
        assert found["mend"] == "set RATCHET_KEYS_FILE to the workers' keys"
        monkeypatch.setenv("RATCHET_KEYS_FILE", write(clinic.home / "ours", "b", b=NEW))
        found = (await clinic.ill())["temporal"]
        assert "encrypted with the key 'a', which RATCHET_KEYS_FILE does not have" in found["found"]


async def test_11_files_and_settings_that_are_wrong(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    (clinic.home / "policy.yaml").write_text("roles: 1")
    (clinic.home / "keys.yaml").write_text("active: a")
    (clinic.home / "keys.yaml").chmod(0o644)
    monkeypatch.setenv("RATCHET_POLICY_FILE", str(clinic.home / "policy.yaml"))
    monkeypatch.setenv("RATCHET_STORE_URL", "postgresql://me:hunter2@127.0.0.1:1/ratchet")
    found = await clinic.ill()
    assert "roles: Input should be" in found["policy"]["found"]
    assert "examples/policy.yaml" in found["policy"]["mend"]
    assert "did not answer" in found["store from here"]["found"]
    assert "hunter2" not in str(found)
    monkeypatch.setenv("RATCHET_KEYS_FILE", str(clinic.home / "keys.yaml"))
    found = await clinic.ill()
    assert ("can be read by others" in found["keys"]["found"], "chmod 600" in found["keys"]["mend"]) == (True, True)
    monkeypatch.setenv("RATCHET_STORE_POOL", "0")
    assert "store_pool: Input should be greater" in (await clinic.ill())["settings"]["found"]


async def test_12_a_server_that_runs_no_standalone_activities(
    clinic: Clinic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "DYNAMIC_CONFIG", (*embedded.DYNAMIC_CONFIG, "activity.enableStandalone=false"))
    server = await embedded.start_server(tmp_path)
    monkeypatch.setenv("TEMPORAL_ADDRESS", server.address)
    monkeypatch.setenv("TEMPORAL_NAMESPACE", "default")
    elsewhere = Clinic(clinic.cli, server.address, "default", tmp_path)
    async with elsewhere.worker(ACTIONS_QUEUE):
        found = (await elsewhere.ill())["reads"]
    await server.stop_server()
    assert "no standalone activities" in found["found"]
    assert "activity.enableStandalone" in found["mend"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("connections: {a: {provider: aws, region: 7}}", "connections.a.aws.region"),
        ("connections: [", "is not YAML in line 1"),
        ("connections: {a: {provider: nonsense, region: x}}", "a"),
        (None, "No such file or directory"),
    ],
)
async def test_13_a_connections_file_that_cannot_be_used(
    clinic: Clinic, monkeypatch: pytest.MonkeyPatch, text: str | None, why: str
) -> None:
    file = clinic.home / "connections.yaml"
    if text is not None:
        file.write_text(text)
    monkeypatch.setenv("RATCHET_CONNECTIONS", str(file))
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    found = await clinic.ill()
    assert why in found["connections"]["found"]
    assert "docs/aws.md" in found["connections"]["mend"]


AWS = """
connections:
  frankfurt:
    provider: aws
    region: eu-central-1
    credentials: {from: environment}
    options: {owner: clinic, endpoint_url: "http://127.0.0.1:1"}
"""


async def test_14_a_cloud_without_credentials_or_that_cannot_be_reached(
    clinic: Clinic, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = clinic.home / "connections.yaml"
    file.write_text(AWS)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RATCHET_CONNECTIONS", str(file))
    assert "frankfurt has no credentials" in (await clinic.ill())["connections"]["found"]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAPLANTED")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    async with clinic.worker(connections=str(file)):
        found = await clinic.ill()
    assert "connections" not in found
    assert "cloud frankfurt" in found, found
    assert "127.0.0.1:1" in found["cloud frankfurt"]["found"]
    assert "starter connections --check" in found["cloud frankfurt"]["mend"]
    assert "hunter2" not in str(found)


async def test_15_a_token_that_is_none(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    file = clinic.home / "token"
    monkeypatch.setenv("RATCHET_CRM_TOKEN_FILE", str(file))
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    assert "cannot be read" in (await clinic.ill())["CRM's token"]["found"]
    file.write_text("hunter2")
    file.chmod(0o600)
    found = (await clinic.ill())["CRM's token"]
    assert ("is not a private key" in found["found"], "starter crm token" in found["mend"]) == (True, True)


async def test_16_versioned_workers_of_which_none_is_current(clinic: Clinic) -> None:
    """The last: the namespace remembers these workers."""
    async with clinic.worker(ACTIONS_QUEUE, deployment="ratchet", build="v1"):
        async with asyncio.timeout(PATIENCE):
            while "v1" not in (found := await clinic.ill()).get("builds", {"mend": ""})["mend"]:
                await asyncio.sleep(0.1)
    assert found["builds"]["found"] == "ratchet: no build is current: nothing new can begin"
    assert found["builds"]["mend"] == "RATCHET_DEPLOYMENT=ratchet starter build promote v1"


class Pollers:
    """Temporal, at whose queues some workers were seen."""

    def __init__(self, *identities: str) -> None:
        self._identities = list(identities)

    async def read_poller_identities(self, _queue: str, _seconds: float) -> list[str]:
        return self._identities


async def test_workers_that_serve_different_clouds_are_told() -> None:
    alike = Pollers("1@a/clouds:simulated", "2@b/clouds:simulated", "another program")
    assert await doctor._check_workers_serve_same_clouds(alike, ["actions"]) == []  # type: ignore[arg-type]
    differing = Pollers("1@a/clouds:simulated", "2@b/clouds:3f2a9c01")
    [found] = await doctor._check_workers_serve_same_clouds(differing, ["actions"])  # type: ignore[arg-type]
    assert found.found == "they do not serve the same clouds: 1@a serves simulated; 2@b serves 3f2a9c01"
    assert "RATCHET_CONNECTIONS" in found.mend
