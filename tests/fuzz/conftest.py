from __future__ import annotations

import pytest

from tests.fuzz.inputs import SEED


@pytest.fixture(scope="session")
def many(chaos: bool) -> int:
    """By how much more is tried in the long run."""
    print(f"RATCHET_CHAOS_SEED={SEED}")  # noqa: T201  shown when something fails
    return 30 if chaos else 1
