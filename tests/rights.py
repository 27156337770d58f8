"""Rights that are taken away while a test runs: everybody may do everything, but for what is forbidden to somebody."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from domain.access import AccessPolicy
from workers.service import WorkerService

WHY = "has left the team"


@contextmanager
def without_right(service: WorkerService, action: str, *paths: str) -> Iterator[None]:
    """The tester may not do this at or below these paths, for as long as the block lasts."""
    policy = AccessPolicy.model_validate(
        {
            "roles": {"all": {"kinds": ["*"], "actions": ["*"], "force": True}},
            "users": {"*": ["all"]},
            "deny": [{"who": ["tester"], "actions": [action], "paths": list(paths), "why": WHY}],
        }
    )
    before = service.authorizer.policy
    service.authorizer.policy = lambda: policy
    try:
        yield
    finally:
        service.authorizer.policy = before
