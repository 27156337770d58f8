"""Amazon EC2: one object per region of an account. boto3 is imported with the first call, in a thread.

Resources in EC2 are found by their tags, so our own records are never needed to find them again.
"""

from providers.aws.cloud import AwsCloud
from providers.aws.connection import AwsConnection
from providers.aws.credentials import check_offline
from providers.provider import CloudAccess, Provider

__all__ = ["PROVIDER", "AwsCloud", "AwsConnection"]

PROVIDER = Provider(
    name="aws",
    connection=AwsConnection,
    cloud_access=CloudAccess(
        open_cloud=AwsCloud, check_offline=lambda connection: check_offline(connection.credentials)
    ),
    docs_page="docs/aws.md",
    install_extra="aws",
    logger_names=("boto3", "botocore", "urllib3"),
)
