"""OpenStack Ironic as the site of lease hosts: a node is deployed when its lease starts, and cleaned at its end."""

from providers.description import FamilyBackend
from providers.leases.ironic.hosts import IronicHosts, open_ironic_hosts
from providers.leases.ironic.options import IronicOptions

__all__ = ["BACKEND", "IronicHosts", "IronicOptions"]

BACKEND = FamilyBackend(
    role="hosts",
    options=IronicOptions,
    open_backend=open_ironic_hosts,
    check_prerequisites=IronicOptions.check_prerequisites,
    docs_page="docs/ironic.md",
    install_extra="ironic",
)
