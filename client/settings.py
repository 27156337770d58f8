"""A client's settings, from RATCHET_* variables. Temporal's address comes from TEMPORAL_* and Temporal's profiles."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import StringConstraints, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from domain.errors import Category, Refused
from domain.fields import describe_errors

Word = Annotated[str, StringConstraints(pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,99})?$")]


class ClientSettings(BaseSettings):
    """The settings of every client; `workers/settings.py` adds those of a worker."""

    model_config = SettingsConfigDict(env_prefix="RATCHET_", extra="ignore", frozen=True)

    home: Path = Path(".ratchet")
    ui_url: str = ""  # Temporal's Web UI, for links; not needed with the embedded server
    deployment: Word = ""  # a name makes workers versioned: an action ends on the build that it began on
    keys_file: str = ""  # encrypts every payload
    traces: str = ""  # an OpenTelemetry collector, such as http://127.0.0.1:4318


S = TypeVar("S", bound=ClientSettings)


def load(model: type[S]) -> S:
    """Reads the settings from the environment; refuses a wrong one, and names it."""
    try:
        return model()
    except ValidationError as error:
        raise Refused(
            Category.INVALID, f"a setting is wrong: {describe_errors(error)}", "see the RATCHET_* variables"
        ) from error
