"""`starter doctor --security`: green on the production example, and it names what is missing on the default one."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa

from activities.proofs import generate_key_pair
from gateway.tokens import hash_token
from starter.errors import ExitCode
from starter.security import CHECKS
from store.engine import Database
from store.history import history_line
from store.migrate import migrate_schema
from store.schema import history
from store.seals import seal_lines
from tests.patience import eventually
from tests.stack import fresh_database
from tests.test_cli.shell import Cli
from tests.test_platform.test_payloads import OLD, TOKEN, write
from tests.test_store.test_seals import DOCS, GRANTS

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "deploy" / "production.env"
ROLE = f"ratchet_doctor_{os.getpid()}"


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    for name in [name for name in os.environ if name.startswith(("TEMPORAL_", "RATCHET_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / "home"))
    return Cli(monkeypatch)


@pytest.fixture
def store(postgres_url: str) -> Iterator[str]:
    """A store with a sealed line, for a worker that has the rights of docs/audit.md and no others."""
    owner = fresh_database(postgres_url)
    database = Database(owner)
    migrate_schema(database)
    line = history_line("ns:a:mci:x", datetime.now(UTC), "User", "create", "None", "Running", 9)
    (grants,) = GRANTS.findall(DOCS.read_text())
    with database.engine.begin() as connection:
        connection.execute(sa.insert(history), [line])
        connection.exec_driver_sql(f"CREATE ROLE {ROLE} LOGIN PASSWORD 'planted'")
        connection.exec_driver_sql(grants.replace("ratchet_worker", ROLE))

    def seal() -> int:
        with database.engine.begin() as connection:
            return seal_lines(connection)

    assert eventually(seal) == 1
    yield sa.make_url(owner).set(username=ROLE, password="planted").render_as_string(hide_password=False)
    with database.engine.begin() as connection:
        connection.exec_driver_sql(f"DROP OWNED BY {ROLE}")
        connection.exec_driver_sql(f"DROP ROLE {ROLE}")
    database.close()


@pytest.fixture
def production(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cli: Cli, store: str) -> Cli:
    """The example, with the files that it names in a folder of the test's own."""
    etc = tmp_path / "etc"
    etc.mkdir()
    pem, key = generate_key_pair()
    (etc / "workers.pem").write_bytes(pem)
    workers = {"keys": [key], "vouches_for": ["clock", "self-healing", "recycle bin"]}
    documents = {
        "identities.yaml": {
            "subjects": {"wanda": {"keys": [generate_key_pair()[1]]}},
            "issuers": {"workers": workers},
        },
        "tokens.yaml": {"tokens": [{"name": "ci", "hash": hash_token("t" * 40)}]},
    }
    for name, document in documents.items():
        (etc / name).write_text(json.dumps(document))
    (etc / "policy.yaml").write_text((ROOT / "examples" / "policy.yaml").read_text())
    (etc / "codec-token").write_text(TOKEN)
    (etc / "other.pem").write_bytes(generate_key_pair()[0])
    (etc / "client.pem").write_text("")
    (etc / "client.key").write_text("")
    for file in etc.iterdir():
        file.chmod(0o600)
    write(etc / "keys.yaml", "a", a=OLD)
    for line in EXAMPLE.read_text().splitlines():
        name, separator, value = line.partition("=")
        if separator and not line.startswith("#"):
            monkeypatch.setenv(name, value.replace("/etc/ratchet", str(etc)))
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("RATCHET_STORE_URL", store)
    return cli


async def missing(cli: Cli) -> dict[str, dict[str, str]]:
    """What is missing, by what it is about; the exit code says so too."""
    ran = await cli("doctor --security -o json")
    checks = json.loads(ran.out)
    assert [check["about"] for check in checks] == list(CHECKS)
    found = {check["about"]: check for check in checks if check["mend"]}
    assert ran.code == (ExitCode.FAILED if found else ExitCode.DONE)
    return found


async def test_the_production_example_is_green(production: Cli) -> None:
    assert await missing(production) == {}
    ran = await production("doctor --security")
    assert (ran.code, ran.out.count("ok ")) == (ExitCode.DONE, len(CHECKS)), ran.out + ran.err


async def test_the_default_names_what_is_missing_and_what_to_do(cli: Cli) -> None:
    found = await missing(cli)
    assert list(found) == [
        *("identities", "policy", "payload keys", "gateway", "webhooks", "audit chain", "rights in the store")
    ]
    for check in found.values():
        assert "deploy/production.env" in check["mend"], check
    ran = await cli("doctor --security")
    assert "missing  identities" in ran.out, ran.out
    assert "hint: set RATCHET_IDENTITIES" in ran.err


@pytest.mark.parametrize(
    ("about", "setting", "value", "words"),
    [
        ("identities", "RATCHET_IDENTITIES", "/nowhere", "cannot be read"),
        ("identities", "RATCHET_KEY_FILE", "", "no key of its own"),
        ("identities", "RATCHET_KEY_FILE", "other.pem", "no issuer in"),
        ("policy", "RATCHET_POLICY_FILE", "", "everybody may do everything"),
        ("payload keys", "RATCHET_KEYS_FILE", "", "plaintext"),
        ("Temporal", "TEMPORAL_TLS", "false", "is plain TCP"),
        ("process backend", "RATCHET_PROGRAMS", "/", "may run every program"),
        ("process backend", "RATCHET_PROGRAMS", "/usr/bin/true,/usr/bin/python3.11", "is an interpreter"),
        ("process backend", "RATCHET_SERVICE_USERS", "worker", "the worker's user"),
        ("container backend", "RATCHET_IMAGES", "//", "every folder"),
        ("container backend", "RATCHET_CONTAINER_NETWORK", "host", "the machine's network"),
        ("gateway", "RATCHET_GATEWAY_TOKENS", "", "may use the gateway"),
        ("gateway", "RATCHET_GATEWAY_HOST", "10.0.0.7", "without TLS"),
        ("codec token", "RATCHET_CODEC_TOKEN_FILE", "/nowhere", "cannot be read"),
        ("webhooks", "RATCHET_WEBHOOKS", "", "any public URL"),
        ("webhooks", "RATCHET_WEBHOOKS", "*", "any URL"),
        ("webhooks", "RATCHET_WEBHOOKS", "http://10.0.0.7", "is not https"),
        ("rights in the store", "RATCHET_STORE_URL", "sqlite", "may change lines"),
    ],
)
async def test_each_check_can_fail(
    production: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, about: str, setting: str, value: str, words: str
) -> None:
    if value == "sqlite":
        value = f"sqlite:///{tmp_path / 'inventory.db'}"
        database = Database(value)
        migrate_schema(database)
        database.close()
    if "backend" in about:
        monkeypatch.setenv("RATCHET_BACKENDS", "simulated,process,container")
    if value == "other.pem":
        value = str(tmp_path / "etc" / value)
    monkeypatch.setenv(setting, value)
    if not value:
        monkeypatch.delenv(setting)
    if setting == "TEMPORAL_TLS":
        monkeypatch.delenv("TEMPORAL_TLS_CLIENT_CERT_PATH")
        monkeypatch.delenv("TEMPORAL_TLS_CLIENT_KEY_PATH")
    found = await missing(production)
    assert words in found[about]["found"], found
    assert set(found) <= {about, "audit chain"}


async def test_an_open_data_folder_is_named(production: Cli, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir(mode=0o755)
    (tmp_path / "home").chmod(0o755)
    assert "which has mode 0755" in (await missing(production))["data folder"]["found"]


async def test_a_changed_line_is_named(production: Cli, postgres_url: str) -> None:
    changed = sa.make_url(os.environ["RATCHET_STORE_URL"])
    owner = sa.make_url(postgres_url).set(database=changed.database)
    database = Database(owner.render_as_string(hide_password=False))
    with database.engine.begin() as connection:
        connection.execute(sa.update(history).values(message="never happened"))
    database.close()
    assert "the history was changed" in (await missing(production))["audit chain"]["found"]
