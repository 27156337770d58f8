"""The gateway's settings: those of a worker, as it may read the same store, and its own."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from domain.validation import Name
from workers.settings import WorkerSettings

USUAL_PORT = 8787


class GatewaySettings(WorkerSettings):
    """`RATCHET_GATEWAY_PORT=9000 starter gateway` and so on."""

    gateway_host: str = "127.0.0.1"  # loopback: TLS and other machines are a proxy's work
    gateway_port: int = Field(USUAL_PORT, ge=0, le=65_535)
    gateway_tokens: Path | None = None  # who may ask; without it everybody on this machine may
    gateway_hosts: list[str] = []  # names that a proxy passes on in the Host header
    gateway_url: str = ""  # how clients reach the gateway, if a proxy is in front, such as https://ratchet.example.com
    gateway_pool: Name = "main"  # the pool of hosts of OpenStack's clients
    gateway_project: Name = "default"  # the project of OpenStack's clients that name none
    gateway_origins: list[str] = []  # pages of other sites that may ask, such as http://127.0.0.1:1324
    gateway_same_request: int = Field(60, ge=1, le=3_600)  # seconds in which a call sent again is the same request
    gateway_prices: Path | None = None  # what VMs cost, for Tumblebug's reviews
