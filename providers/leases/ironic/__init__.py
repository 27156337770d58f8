"""OpenStack Ironic as the site of lease hosts: a node is deployed when its lease starts, and cleaned at its end."""

from providers.description import FamilyBackend
from providers.leases.ironic.hosts import IronicHosts
from providers.leases.ironic.options import IronicOptions

__all__ = ["BACKEND", "IronicHosts", "IronicOptions"]

BACKEND = FamilyBackend(
    role="hosts",
    options=IronicOptions,
    open_backend=lambda options, _: IronicHosts(options),  # it needs no database of ours: nodes carry their lessee
    check_prerequisites=IronicOptions.check_prerequisites,
    docs_page="docs/ironic.md",
    install_extra="ironic",
)
