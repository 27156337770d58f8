"""A cloud kept in the database: the embedded default, honest enough for the contract tests of real providers.

Its tables are its own, not part of the inventory: they are the provider's books, against which ours are checked.
"""

from domain.faults import Fault, Kind
from providers.simulated.cloud import SimulatedCloud
from providers.simulated.ledger import Peaks
from providers.simulated.machines import Vm
from providers.simulated.tables import create_tables

__all__ = ["Fault", "Kind", "Peaks", "SimulatedCloud", "Vm", "create_tables"]
