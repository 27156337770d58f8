"""The waiting helpers of this folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.test_platform.forkserver import ForkServer
from tests.test_platform.site import Worker


async def test_who_waits_for_the_words_of_a_process_that_has_ended_is_told_at_once(
    forkserver: ForkServer, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    log.touch()
    worker = Worker(await forkserver.start(["worker", "--nonsense"], dict(os.environ), log), log)
    with pytest.raises(AssertionError, match=r"(?s)ended with code 2: .*nonsense"):
        await worker.until_said('"serving"')
