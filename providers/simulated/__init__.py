"""A cloud stored in the database: the embedded default, which passes the contract tests of real providers.

Its tables are not part of the inventory: audits compare the inventory with them.
"""

from domain.faults import Fault, FaultKind
from providers.description import CloudProvider
from providers.simulated.cloud import SimulatedCloud
from providers.simulated.concurrency import Concurrency
from providers.simulated.connection import SimulatedConnection, default_connections
from providers.simulated.tables import create_tables
from providers.simulated.vms import SimulatedVm

__all__ = [
    "PROVIDER",
    "Concurrency",
    "Fault",
    "FaultKind",
    "SimulatedCloud",
    "SimulatedConnection",
    "SimulatedVm",
    "create_tables",
    "default_connections",
]

PROVIDER = CloudProvider(name="simulated", connection=SimulatedConnection)
