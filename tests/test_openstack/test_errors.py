"""OpenStack's answers and silences, and what becomes of them; no secret is repeated."""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from domain.errors import NoCapacity, ProviderError, Rejected, Throttled, Unavailable, UnknownOutcome
from providers.openstack import OpenStackCloud, OpenStackConnection
from providers.openstack.errors import Busy, CallRejected, translate_answer
from tests.cases import every_case

SECRET = "hush-hush-it-is-a-secret"


def answer(status: int, message: str, **headers: str) -> httpx.Response:
    return httpx.Response(status, json={"told": {"code": status, "message": message}}, headers=headers)


@every_case(
    ("status", "message", "changing", "error"),
    [
        (202, "", True, type(None)),
        (400, "bad flavor", True, CallRejected),
        (401, "who are you", True, CallRejected),
        (403, "Quota exceeded for instances: Requested 1", True, NoCapacity),
        (403, "Policy doesn't allow it", True, CallRejected),
        (404, "no such server", True, CallRejected),
        (409, "Cannot 'stop' instance while it is in task_state powering-on", True, Busy),
        (409, "Quota exceeded for resources: ['network']", True, NoCapacity),
        (429, "slowly", True, Throttled),
        (500, "oops", True, UnknownOutcome),
        (500, "oops", False, Unavailable),
        (503, "later", True, Unavailable),
        (504, "gateway", True, UnknownOutcome),
    ],
)
def test_an_answer_says_whether_a_retry_can_help(status: int, message: str, changing: bool, error: type) -> None:
    assert type(translate_answer(answer(status, message), changing, [])) is error


def test_a_message_repeats_no_secret_and_a_throttled_call_waits_as_long_as_it_was_asked_to() -> None:
    found = translate_answer(answer(429, f"token {SECRET}", **{"Retry-After": "1.5"}), True, [SECRET])
    assert isinstance(found, Throttled)
    assert found.retry_after == 1.5
    assert SECRET not in str(found)


def cloud_at(folder: Path, port: int, **options: Any) -> OpenStackCloud:
    file = folder / "clouds.yaml"
    file.touch(mode=0o600)
    auth = {"token": SECRET, "endpoint": f"http://127.0.0.1:{port}"}
    told = {"auth_type": "admin_token", "auth": auth, "compute_endpoint_override": f"http://127.0.0.1:{port}/v2.1"}
    file.write_text(yaml.safe_dump({"clouds": {"lab": told}}))
    source = {"from": "clouds", "path": str(file), "cloud": "lab"}
    document = {"provider": "openstack", "region": "r", "credentials": source, "options": options}
    return OpenStackCloud(OpenStackConnection.model_validate(document))


async def test_a_cloud_that_nobody_serves_is_away_and_not_wrong(tmp_path: Path) -> None:
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens
        cloud = cloud_at(tmp_path, taken.getsockname()[1])
        with pytest.raises(ProviderError) as away:
            await cloud.check_credentials()
        await cloud.close()
    assert not isinstance(away.value, Rejected), "a retry helps"
    assert SECRET not in str(away.value)
