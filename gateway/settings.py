"""The gateway's settings: those of a worker, as it may read the same store, and its own."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from workers.settings import WorkerSettings

USUAL_PORT = 8787


class GatewaySettings(WorkerSettings):
    """`RATCHET_GATEWAY_PORT=9000 starter gateway` and so on."""

    gateway_host: str = "127.0.0.1"  # loopback: TLS and other machines are a proxy's work
    gateway_port: int = Field(USUAL_PORT, ge=0, le=65_535)
    gateway_tokens: Path | None = None  # who may ask; without it everybody on this machine may
    gateway_hosts: list[str] = []  # names that a proxy passes on in the Host header
