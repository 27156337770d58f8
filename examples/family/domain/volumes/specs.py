"""What people send with an action."""

from __future__ import annotations

from pydantic import Field

from domain.fields import Name
from domain.model import Model


class NewVolume(Model):
    """A new volume."""

    size: int = Field(10, ge=1, le=16_384, description="GiB.")


class Attach(Model):
    """Where a volume is to be used."""

    server: Name = Field(description="The server that it is attached to.")


class Resize(Model):
    """A larger size."""

    size: int = Field(ge=1, le=16_384, description="GiB; a volume never shrinks.")
