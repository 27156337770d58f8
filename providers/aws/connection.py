"""The connections file's model of AWS: region, source of credentials, and options for VMs."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import ClassVar, Literal

from pydantic import Field

from domain.connections import Connection
from providers.options import DEFAULT_OWNER, CredentialFields, VmOptions


class AwsCredentialsSource(CredentialFields):
    """Where the credentials come from. `default` is the SDK's own search, including instance roles."""

    fields_of_source: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "environment": ("prefix",),
        "file": ("path", "profile"),
        "profile": ("profile",),
    }
    needed_field: ClassVar[Mapping[str, str]] = {"file": "path", "profile": "profile"}

    source: Literal["default", "environment", "file", "profile"] = Field("default", alias="from")
    profile: str = Field("", max_length=100)


class AwsOptions(VmOptions):
    """How the VMs of one connection are created. Specs are instance types, images AMIs."""

    endpoint_url: str = Field("", max_length=500, pattern=r"^(https?://[^@\s]+)?$")
    account: str = Field("", pattern=r"^([0-9]{12})?$")  # credentials of another account are refused
    subnet: str = Field("", max_length=60)  # use this subnet; create no network
    public_addresses: bool = True
    launches_per_second: float = Field(2.0, gt=0)  # EC2's default limit for an account
    lag_seconds: float = Field(10.0, ge=0)  # the longest time that EC2's reads lag behind its writes
    connect_seconds: float = Field(5.0, gt=0)

    @property
    def existing_network(self) -> str:
        return self.subnet


class AwsConnection(Connection):
    """A region of AWS, or of a service with EC2's API."""

    provider: Literal["aws"]
    credentials: AwsCredentialsSource = AwsCredentialsSource()
    options: AwsOptions = AwsOptions()

    @property
    def owner_identity(self) -> str:
        """The provider's name in places. It differs by endpoint, account and owner: each finds its own VMs only."""
        options = self.options
        particular = {"endpoint": options.endpoint_url, "account": options.account, "owner": options.owner}
        if particular == {"endpoint": "", "account": "", "owner": DEFAULT_OWNER}:
            return self.provider
        return f"{self.provider}-{sha256(repr(sorted(particular.items())).encode()).hexdigest()[:8]}"
