"""The simulated hypervisor. Its tables are not part of the inventory."""

from providers.machines.hypervisor import PROVIDER_NAME, SimulatedHypervisor

__all__ = ["PROVIDER_NAME", "SimulatedHypervisor"]
