"""Keystone's part in the tests' OpenStack: who has which token. Runs in OpenStack's environment, not in ours."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

MEMBER_TOKEN = "member-token-of-the-tests"
ADMIN_TOKEN = "admin-token-of-the-tests"
PROJECT = "6f70656e737461636b20342065766572"

_kept_open: list[sqlite3.Connection] = []
Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def check_tokens(application: Application) -> Application:
    """Sets the headers of the identity that a token stands for, as Keystone's filter does; 401 without one."""

    def filtered(environ: dict[str, Any], respond: Callable[..., Any]) -> Iterable[bytes]:
        roles = {MEMBER_TOKEN: "member,reader", ADMIN_TOKEN: "admin,member,reader,service"}.get(
            environ.get("HTTP_X_AUTH_TOKEN", "")
        )
        if roles is None:
            respond("401 Unauthorized", [("Content-Type", "text/plain"), ("Content-Length", "0")])
            return []
        environ |= {
            "HTTP_X_IDENTITY_STATUS": "Confirmed",
            "HTTP_X_USER_ID": roles.partition(",")[0],
            "HTTP_X_PROJECT_ID": PROJECT,
            "HTTP_X_ROLES": roles,
        }
        if environ.get("HTTP_X_SERVICE_TOKEN") == ADMIN_TOKEN:  # Nova asks for its user
            environ |= {"HTTP_X_SERVICE_IDENTITY_STATUS": "Confirmed", "HTTP_X_SERVICE_ROLES": "service"}
        return application(environ, respond)

    return filtered


def end_with_parent() -> None:
    """Ends this process when the one that started it is gone: a killed test leaves nothing behind."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


def write_one_at_a_time() -> None:
    """Lets one transaction write at a time, from its begin to its end, as SQLite wants it; Nova's tests do the same."""
    from oslo_db.sqlalchemy import enginefacade  # type: ignore[import-not-found]

    lock, manager = threading.RLock(), enginefacade._TransactionContextManager
    plain = manager._transaction_scope

    @contextmanager
    def in_turn(self: Any, context: Any) -> Iterator[Any]:
        with lock if self._mode is enginefacade._WRITER else nullcontext(), plain(self, context) as resource:
            yield resource

    manager._transaction_scope = in_turn


def keep_open(*files: Path) -> None:
    """Keeps a connection to each database, which makes the services' own cheap: when the last one is closed, SQLite
    copies the whole journal into the file.
    """
    for file in files:
        connection = sqlite3.connect(file, check_same_thread=False)
        connection.execute("PRAGMA journal_mode=WAL")  # readers do not wait for writers
        connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
        _kept_open.append(connection)


def replace_keystone() -> None:
    """Lets the services take `check_tokens` for Keystone's filter."""
    import keystonemiddleware.auth_token as middleware  # type: ignore[import-not-found]

    middleware.filter_factory = lambda *_, **__: check_tokens
