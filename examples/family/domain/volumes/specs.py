"""What people send with an action."""

from __future__ import annotations

from pydantic import Field

from domain.model import FrozenModel
from domain.validation import Name


class NewVolume(FrozenModel):
    """A new volume."""

    size: int = Field(10, ge=1, le=16_384, description="GiB.")


class Attach(FrozenModel):
    """Where a volume is to be used."""

    example = {"server": "web-1"}

    server: Name = Field(description="The server that it is attached to.")


class Resize(FrozenModel):
    """A larger size."""

    example = {"size": 40}

    size: int = Field(ge=1, le=16_384, description="GiB; a volume never shrinks.")
