"""`starter gateway` in a process of its own, which waits for outcomes as long as tests do."""

from __future__ import annotations

from typing import NoReturn

from gateway import native
from gateway.dialects import calls
from starter.__main__ import main as run_starter
from tests.patience import PATIENCE


def main() -> NoReturn:
    calls.WAIT_SECONDS = native.DEFAULT_WAIT_SECONDS = PATIENCE
    run_starter()
