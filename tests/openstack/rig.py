"""Starts Nova and Neutron as processes that can be killed and started again, and connects to them by the proxy."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml

from providers.openstack import OpenStackConnection
from providers.openstack.servers import place_hash
from providers.sockets import find_free_port
from tests.locked import install_locked
from tests.openstack.proxy import Proxy, serving
from tests.openstack.tokens import MEMBER_TOKEN
from tests.patience import PATIENCE

HERE = Path(__file__).parent
IMAGE = "155d900f-4e14-4e4c-a73d-069cbf4541e6"  # of Nova's own fixture
PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKHEUgKxhTuEhVQb8+W6mYJ6/sCJ0rpKBPiTDQYPfJ7r tests"
START_SECONDS = 4 * PATIENCE  # on a loaded machine; 15 on an idle one


@dataclass
class Service:
    """One process of OpenStack."""

    command: list[str]
    log: Path
    probe: str
    _process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("a") as log:
            self._process = subprocess.Popen(self.command, stdout=log, stderr=log, start_new_session=True)

    def wait(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                headers = {"X-Auth-Token": MEMBER_TOKEN}
                if httpx.get(self.probe, headers=headers, timeout=PATIENCE, trust_env=False).is_success:
                    return
            except httpx.HTTPError:
                pass
            assert self._process.poll() is None, self.log.read_text()[-2000:]
            assert time.monotonic() < deadline, self.log.read_text()[-2000:]
            time.sleep(0.2)

    def kill(self) -> None:
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@dataclass
class OpenStack:
    """A running OpenStack: its faults, its database, and connections to it."""

    folder: Path
    url: str  # of the proxy
    proxy: Proxy
    nova: Service
    neutron: Service
    there: dict[str, Any] = field(default_factory=dict)  # options: a network, a group and a key that are there

    def document(self, region: str, owner: str, **options: Any) -> dict[str, Any]:
        """A connection to it, as in a connections file."""
        usual = {
            "owner": owner,
            "specs": {"small": "m1.tiny"},
            "images": {"ubuntu-24.04": IMAGE},
            "public_key": PUBLIC_KEY,
            "poll_seconds": 1.5,  # every look costs Nova more than the order itself
            "wait_seconds": PATIENCE,
            "lag_seconds": 2,
            "read_seconds": PATIENCE,
        }
        credentials = {"from": "clouds", "path": str(self.folder / "clouds.yaml"), "cloud": region}
        return {"provider": "openstack", "region": region, "credentials": credentials, "options": usual | options}

    def connection(self, region: str, owner: str, **options: Any) -> OpenStackConnection:
        """A connection that makes its own network."""
        return OpenStackConnection.model_validate(self.document(region, owner, **options))

    def furnished(self, region: str, owner: str, **options: Any) -> OpenStackConnection:
        """A connection that uses an existing network, which is quicker."""
        return self.connection(region, owner, **(self.there | options))

    def servers(self, owner: str) -> list[dict[str, Any]]:
        """Every server that an owner ever had, as Nova's databases have it."""
        found = []
        for cell in ("cell0", "cell1"):
            with closing(sqlite3.connect(f"file:{self.folder}/{cell}.db?mode=ro", uri=True, timeout=PATIENCE)) as rows:
                rows.row_factory = sqlite3.Row
                found += [dict(row) for row in rows.execute("SELECT * FROM instances")]
        marks = [place_hash(f"{owner}/{region}") for region in REGIONS]
        return [row for row in found if any(mark in row["display_name"] for mark in marks)]


REGIONS = ("eu-central-1", "us-east-1")


@contextmanager
def openstack_running(folder: Path, cores: int = -1) -> Iterator[OpenStack]:
    """Starts everything on empty databases."""
    python = str(install_locked("openstack", "Nova") / "python")
    folder.mkdir(parents=True, exist_ok=True)
    nova, neutron = find_free_port(), find_free_port()
    upstream = {"compute": f"http://127.0.0.1:{nova}", "network": f"http://127.0.0.1:{neutron}"}
    services = {
        "neutron": Service(
            [python, str(HERE / "serve_neutron.py"), str(folder), str(neutron)],
            folder / "neutron.out",
            f"{upstream['network']}/v2.0/networks",
        ),
        "nova": Service(
            [python, str(HERE / "serve_nova.py"), str(folder), str(nova), str(neutron), str(cores)],
            folder / "nova.out",
            f"{upstream['compute']}/v2.1/flavors",
        ),
    }
    proxy = Proxy(upstream)
    for service in services.values():
        service.start()
    try:
        for service in services.values():
            service.wait()
        with serving(proxy) as url:
            _write_clouds(folder / "clouds.yaml", url)
            running = OpenStack(folder, url, proxy, services["nova"], services["neutron"])
            running.there = _furnish(upstream)
            yield running
    finally:
        for service in services.values():
            service.kill()


def _write_clouds(file: Path, url: str) -> None:
    clouds = {
        region: {
            "auth_type": "admin_token",
            "auth": {"token": MEMBER_TOKEN, "endpoint": f"{url}/{region}"},
            "compute_endpoint_override": f"{url}/{region}/compute/v2.1",
            "network_endpoint_override": f"{url}/{region}/network/v2.0",
        }
        for region in REGIONS
    }
    file.touch(mode=0o600)
    file.write_text(yaml.safe_dump({"clouds": clouds}))


def _furnish(upstream: dict[str, str]) -> dict[str, Any]:
    """Makes a network, a security group and a key; returns the options that name them."""
    headers = {"X-Auth-Token": MEMBER_TOKEN}
    with httpx.Client(headers=headers, timeout=PATIENCE, trust_env=False) as client:

        def make(service: str, what: str, kind: str, **body: Any) -> Any:
            answer = client.post(f"{upstream[service]}/{what}", json={kind: body})
            assert answer.is_success, answer.text
            return answer.json()[kind]

        network = make("network", "v2.0/networks", "network", name="there")["id"]
        make("network", "v2.0/subnets", "subnet", network_id=network, cidr="10.0.0.0/16", ip_version=4)
        group = make("network", "v2.0/security-groups", "security_group", name="there")["id"]
        key = make("compute", "v2.1/os-keypairs", "keypair", name="there", public_key=PUBLIC_KEY)["name"]
    return {"network": network, "security_groups": [group], "key_name": key}
