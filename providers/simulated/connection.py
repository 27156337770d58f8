"""Connections of simulated clouds: their model in the connections file, and the defaults without a file."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from domain.connections import Connection
from domain.validation import Name
from providers.simulated.catalogue import REGIONS


class SimulatedConnection(Connection):
    """A place in a simulated cloud of any name."""

    model_config = ConfigDict(validate_by_name=False)  # the file has `csp` only

    provider: Literal["simulated"]
    cloud: Name = Field(alias="csp")

    @property
    def csp(self) -> str:
        return self.cloud


def default_connections() -> dict[str, SimulatedConnection]:
    """Returns a connection for each cloud and region of the catalogue, such as `gcp-europe-west3`."""
    return {
        f"{csp}-{region}": SimulatedConnection(provider="simulated", csp=csp, region=region)
        for csp, regions in REGIONS.items()
        for region in regions
    }
