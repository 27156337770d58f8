"""A client's settings, from RATCHET_* variables. Temporal's address comes from TEMPORAL_* and Temporal's profiles."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, TypeVar

from pydantic import Field, StringConstraints
from pydantic_settings import BaseSettings, SettingsConfigDict

from domain.validation import refuse_validation_errors

SettingWord = Annotated[str, StringConstraints(pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,99})?$")]


class ClientSettings(BaseSettings):
    """The settings of every client; `workers/settings.py` adds those of a worker."""

    model_config = SettingsConfigDict(env_prefix="RATCHET_", extra="ignore", frozen=True)

    uses_login: ClassVar[bool] = True  # speaks for whoever has logged in

    home: Path = Path(".ratchet")
    ui_url: str = ""  # Temporal's Web UI, for links; not needed with the embedded server
    deployment: SettingWord = ""  # a name makes workers versioned: an action ends on the build that it began on
    keys_file: str = ""  # encrypts every payload
    codec_token_file: Path | None = None  # the token of `starter codec`; without it each start makes one
    key_file: str = ""  # a private key that proves who asks; see `starter key new`
    subject: str = Field("", max_length=100)  # whose key it is; without a key, the name to claim
    traces: str = ""  # an OpenTelemetry collector, such as http://127.0.0.1:4318


S = TypeVar("S", bound=ClientSettings)


def load_settings(model: type[S]) -> S:
    """Reads the settings from the environment; refuses a wrong one, and names it."""
    with refuse_validation_errors("a setting is wrong", "see the RATCHET_* variables"):
        return model()
