"""The server that tests talk to, and connections that lead to it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from werkzeug.serving import WSGIRequestHandler, make_server

from providers.aws.connection import AwsConnection
from tests.faulty.ec2 import FaultyEc2
from tests.patience import PATIENCE

os.environ["MOTO_EC2_LOAD_DEFAULT_AMIS"] = "false"  # many images that nobody boots

PREFIX = "MOTO_"  # of the variables with the credentials that tests use
PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKHEUgKxhTuEhVQb8+W6mYJ6/sCJ0rpKBPiTDQYPfJ7r tests"


@dataclass(frozen=True)
class Moto:
    """A running moto server: its faults, and connections to it."""

    ec2: FaultyEc2
    url: str
    regions: dict[str, dict[str, Any]]  # options by region: an image, and a network that is there

    def document(self, region: str, owner: str, **options: Any) -> dict[str, Any]:
        """A connection to it, as in a connections file."""
        usual = {
            "endpoint_url": self.url,
            "owner": owner,
            "specs": {"small": "t3.micro"},
            "images": self.regions[region]["images"],
            "public_key": PUBLIC_KEY,
            "launches_per_second": 1_000,
            "poll_seconds": 0.02,
            "wait_seconds": PATIENCE,
            "lag_seconds": 0.5,
            "read_seconds": 2 * PATIENCE,
            "connect_seconds": PATIENCE,
        }
        credentials = {"from": "environment", "prefix": PREFIX}
        return {"provider": "aws", "region": region, "credentials": credentials, "options": usual | options}

    def connection(self, region: str, owner: str, **options: Any) -> AwsConnection:
        """A connection that makes its own network."""
        return AwsConnection.model_validate(self.document(region, owner, **options))

    def furnished(self, region: str, owner: str, **options: Any) -> AwsConnection:
        """A connection that uses an existing network, which is quicker."""
        return self.connection(region, owner, **(self.regions[region] | options))


@contextmanager
def running(*regions: str) -> Iterator[Moto]:
    """A server in a thread of this process, with an image and a network in each of the regions."""
    with _serving() as (ec2, url):
        yield Moto(ec2, url, {region: _furnish(url, region) for region in regions})


def _furnish(url: str, region: str) -> dict[str, Any]:
    client = import_module("boto3").client(
        "ec2", region, endpoint_url=url, aws_access_key_id="x", aws_secret_access_key="x"
    )
    image = client.register_image(Name=f"ubuntu-{region}", Architecture="x86_64")["ImageId"]
    subnet, group = client.describe_subnets()["Subnets"][0], client.describe_security_groups()["SecurityGroups"][0]
    key = client.create_key_pair(KeyName="there")["KeyName"]
    client.close()
    given = {"subnet": subnet["SubnetId"], "security_groups": [group["GroupId"]], "key_name": key}
    return {"images": {"ubuntu-24.04": image}, **given}


@contextmanager
def _serving() -> Iterator[tuple[FaultyEc2, str]]:
    from moto.ec2.models import ec2_backends
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

    ec2 = FaultyEc2(DomainDispatcherApplication(create_backend_app), ec2_backends)
    server = make_server("127.0.0.1", 0, ec2, threaded=True, request_handler=_Silent)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield ec2, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Silent(WSGIRequestHandler):
    def log(self, *_: Any) -> None:
        """Log nothing."""
