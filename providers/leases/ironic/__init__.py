"""OpenStack Ironic as the site of lease hosts: a node is deployed when its lease starts, and cleaned at its end."""

from providers.leases.ironic.hosts import IronicHosts, open_hosts
from providers.leases.ironic.options import IronicOptions
from providers.provider import Backend

__all__ = ["BACKEND", "IronicHosts", "IronicOptions"]

BACKEND = Backend(
    role="hosts",
    options=IronicOptions,
    open_backend=open_hosts,
    check_offline=IronicOptions.check_host,
    docs_page="docs/ironic.md",
    install_extra="ironic",
)
