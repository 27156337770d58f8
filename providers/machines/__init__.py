"""The simulated hypervisor. Its tables are not part of the inventory."""

from providers.machines.hypervisor import NAME, SimulatedHypervisor

__all__ = ["NAME", "SimulatedHypervisor"]
