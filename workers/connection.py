"""Where Temporal is: its own profiles and TEMPORAL_* variables first, then the embedded server, then localhost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from temporalio.client import Client, Plugin
from temporalio.envconfig import ClientConfig as Profiles
from temporalio.runtime import Runtime

DEFAULT_ADDRESS = "127.0.0.1:7233"
EMBEDDED_FILE = "embedded.json"


def connection(home: Path, profile: str | None = None) -> dict[str, Any]:
    """Keyword arguments for `Client.connect`."""
    config: dict[str, Any] = {**Profiles.load_client_connect_config(profile)}
    if not config.get("target_host"):
        config["target_host"] = embedded(home).get("address", DEFAULT_ADDRESS)
    config.setdefault("namespace", "default")
    return config


def embedded(home: Path) -> dict[str, Any]:
    """What the embedded server wrote about itself, or nothing."""
    try:
        found: dict[str, Any] = json.loads((home / EMBEDDED_FILE).read_text())
    except (OSError, ValueError):
        return {}
    return found


async def connect(
    home: Path, *plugins: Plugin, profile: str | None = None, lazy: bool = False, runtime: Runtime | None = None
) -> Client:
    """A client. `lazy`: the first call connects."""
    return await Client.connect(**connection(home, profile), plugins=plugins, lazy=lazy, runtime=runtime)
