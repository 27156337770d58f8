"""The pure rules of volumes."""

from __future__ import annotations

import pytest

from domain.errors import Refused
from domain.singleorder import ABSENT, ObjectFacts
from domain.statetable import NONE
from domain.volumes.rules import refuse_to_shrink, status_from


@pytest.mark.parametrize(("state", "status"), [(ABSENT, NONE), ("free", "Available"), ("attached", "InUse")])
def test_a_description_means_a_status(state: str, status: str) -> None:
    assert status_from(ObjectFacts("project:acme:volume:data", state)) == status


def test_a_volume_never_shrinks() -> None:
    refuse_to_shrink("project:acme:volume:data", 10, 11)
    with pytest.raises(Refused, match="a volume only grows"):
        refuse_to_shrink("project:acme:volume:data", 10, 10)
