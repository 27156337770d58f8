"""Amazon EC2: one object per region of an account. boto3 is imported with the first call, in a thread.

Resources in EC2 are found by their tags, so our own records are never needed to find them again.
"""

from providers.aws.cloud import AwsCloud
from providers.aws.connection import AwsConnection
from providers.aws.credentials import check_prerequisites
from providers.description import CloudAccess, CloudProvider

__all__ = ["PROVIDER", "AwsCloud", "AwsConnection"]

PROVIDER = CloudProvider(
    name="aws",
    connection=AwsConnection,
    cloud_access=CloudAccess(
        open_cloud=AwsCloud, check_prerequisites=lambda connection: check_prerequisites(connection.credentials)
    ),
    docs_page="docs/aws.md",
    install_extra="aws",
    logger_names=("boto3", "botocore", "urllib3"),
)
