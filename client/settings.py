"""Settings of a client, from RATCHET_* variables. Temporal's own are Temporal's: TEMPORAL_* and its profiles."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import StringConstraints, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from domain.errors import Category, Refused
from domain.fields import describe_errors

Word = Annotated[str, StringConstraints(pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,99})?$")]


class ClientSettings(BaseSettings):
    """What a program needs to reach Ratchet; `workers/settings.py` adds what a worker needs."""

    model_config = SettingsConfigDict(env_prefix="RATCHET_", extra="ignore", frozen=True)

    home: Path = Path(".ratchet")
    ui_url: str = ""  # Temporal's Web UI, for links; the embedded server's is known
    deployment: Word = ""  # with a name, workers are versioned: an action ends on the build that it began on
    keys_file: str = ""  # with it, whatever goes through Temporal is encrypted
    traces: str = ""  # an OpenTelemetry collector, such as http://127.0.0.1:4318


S = TypeVar("S", bound=ClientSettings)


def load(model: type[S]) -> S:
    """The settings from the environment, or Refused saying which one is wrong."""
    try:
        return model()
    except ValidationError as error:
        raise Refused(
            Category.INVALID, f"a setting is wrong: {describe_errors(error)}", "see the RATCHET_* variables"
        ) from error
