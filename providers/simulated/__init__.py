"""A cloud stored in the database: the embedded default, which passes the contract tests of real providers.

Its tables are not part of the inventory: audits compare the inventory with them.
"""

from domain.faults import Fault, FaultKind
from providers.provider import Provider
from providers.simulated.cloud import SimulatedCloud
from providers.simulated.concurrency import Peaks
from providers.simulated.connection import SimulatedConnection, usual_connections
from providers.simulated.tables import create_tables
from providers.simulated.vms import Vm

__all__ = [
    "PROVIDER",
    "Fault",
    "FaultKind",
    "Peaks",
    "SimulatedCloud",
    "SimulatedConnection",
    "Vm",
    "create_tables",
    "usual_connections",
]

PROVIDER = Provider(name="simulated", connection=SimulatedConnection)
