"""The file of a cloudlet: what could not be written is not there by half, and the CRM goes on."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from providers.edge.platform import CloudletPlatform


def test_what_cannot_be_written_changes_nothing_and_keeps_nobody_from_writing(tmp_path: Path) -> None:
    unwritable = "\ud800"  # SQLite takes no lone surrogate: the second statement fails
    with closing(CloudletPlatform(tmp_path / "berlin.db")) as platform:
        platform.put_instance("app-1", {}, "create", "k1")
        with pytest.raises(UnicodeEncodeError):
            platform.put_instance("app-2", {}, "create", unwritable)
        with pytest.raises(UnicodeEncodeError):
            platform.remove_instance("app-1", unwritable)
        assert list(platform.list_instances()) == ["app-1"]
        with closing(CloudletPlatform(platform.file)) as other:
            other.put_instance("app-2", {}, "create", "k2")
        platform.remove_instance("app-1")
        assert list(platform.list_instances()) == ["app-2"]
