"""A cloud kept in the database: the embedded default, honest enough for the contract tests of real providers.

Its tables are its own, not part of the inventory: they are the provider's books, against which ours are checked.
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
