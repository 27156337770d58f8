"""A worker with bad settings says what is wrong and exits; nothing is half started."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import sqlalchemy as sa

from starter.errors import ExitCode
from store.engine import Database
from store.migrate import migrate_schema
from tests.stack import fresh_database
from tests.test_platform.forkserver import ForkServer
from tests.test_platform.site import Site, open_postgres_site


@pytest.fixture(scope="module")
async def site(
    tmp_path_factory: pytest.TempPathFactory, postgres_url: str, forkserver: ForkServer
) -> AsyncIterator[Site]:
    async with open_postgres_site(tmp_path_factory.mktemp("starting"), postgres_url, forkserver) as found:
        yield found


@pytest.fixture(scope="module")
def newer(postgres_url: str) -> str:
    """A store of a version that is yet to come."""
    database = Database(url := fresh_database(postgres_url))
    migrate_schema(database)
    database.run_transaction_blocking(
        lambda connection: connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    )
    database.close()
    return url


@pytest.fixture(scope="module")
def forbidden(postgres_url: str) -> str:
    """A store whose user may look but not touch."""
    database = Database(url := fresh_database(postgres_url))
    database.run_transaction_blocking(lambda connection: connection.execute(sa.text("CREATE ROLE onlooker LOGIN")))
    database.run_transaction_blocking(
        lambda connection: connection.execute(sa.text("REVOKE ALL ON SCHEMA public FROM PUBLIC"))
    )
    database.close()
    return str(sa.make_url(url).set(username="onlooker"))


BAD: dict[str, tuple[dict[str, str], ExitCode, str, str]] = {
    "nobody there": (
        {"RATCHET_STORE_URL": "postgresql://me:hunter2@127.0.0.1:1/ratchet"},
        ExitCode.UNREACHABLE,
        "the store did not answer",
        "RATCHET_STORE_URL",
    ),
    "no URL": ({"RATCHET_STORE_URL": "hunter2"}, ExitCode.USAGE, "the store's URL cannot be read", "postgresql://user"),
    "newer": (
        {"RATCHET_STORE_URL": "{newer}"},
        ExitCode.USAGE,
        "has schema 9999, which is newer",
        "upgrade this program",
    ),
    "no rights": (
        {"RATCHET_STORE_URL": "{forbidden}"},
        ExitCode.USAGE,
        "the store denies access",
        "the right to create",
    ),
    "pool": ({"RATCHET_STORE_POOL": "0"}, ExitCode.USAGE, "store_pool: Input should be greater", "RATCHET_*"),
    "policy": (
        {"RATCHET_POLICY_FILE": "/nowhere"},
        ExitCode.USAGE,
        "the policy file /nowhere cannot be read",
        "examples/",
    ),
    "keys": (
        {"RATCHET_KEYS_FILE": "/nowhere"},
        ExitCode.USAGE,
        "the keys file /nowhere cannot be read",
        "openssl rand",
    ),
    "metrics": ({"RATCHET_METRICS": "somewhere"}, ExitCode.USAGE, "metrics cannot be served", "127.0.0.1:9464"),
    "server": ({"TEMPORAL_ADDRESS": "127.0.0.1:1"}, ExitCode.UNREACHABLE, "connection refused", "starter up"),
    "namespace": (
        {"TEMPORAL_NAMESPACE": "nowhere"},
        ExitCode.UNREACHABLE,
        "no namespace 'nowhere'",
        "TEMPORAL_NAMESPACE",
    ),
    "profile": ({"TEMPORAL_PROFILE": "nowhere"}, ExitCode.USAGE, "Profile 'nowhere' not found", "TEMPORAL_CONFIG_FILE"),
}


@pytest.mark.parametrize("name", BAD)
async def test_a_worker_with_bad_input_does_not_start_and_says_why(
    site: Site, newer: str, forbidden: str, name: str
) -> None:
    variables, code, why, hint = BAD[name]
    given = {key: value.format(newer=newer, forbidden=forbidden) for key, value in variables.items()}
    found, said = await site.starter("worker", **given)
    assert (found, why in said, hint in said) == (code, True, True), said
    assert '"serving"' not in said
    assert "Traceback" not in said
    assert "hunter2" not in said
    assert await site.asking.count_pollers("actions") == 0
