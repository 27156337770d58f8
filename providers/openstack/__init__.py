"""OpenStack: one object per region of a project. openstacksdk is imported with the first call, in a thread.

Nova has no client tokens. A server is found again by its name, which carries a hash of its path, and by its metadata
and description, which carry the token of the order that made it and the epoch of the last action.
"""

from providers.description import CloudAccess, CloudProvider
from providers.openstack.cloud import OpenStackCloud
from providers.openstack.connection import OpenStackConnection
from providers.openstack.credentials import check_prerequisites

__all__ = ["PROVIDER", "OpenStackCloud", "OpenStackConnection"]

PROVIDER = CloudProvider(
    name="openstack",
    connection=OpenStackConnection,
    cloud_access=CloudAccess(open_cloud=OpenStackCloud, check_prerequisites=check_prerequisites),
    docs_page="docs/openstack.md",
    install_extra="openstack",
    logger_names=("openstack", "keystoneauth", "keystoneauth1", "urllib3"),
)
