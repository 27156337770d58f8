"""Amazon EC2: one object per region of an account. boto3 is imported with the first call, in a thread.

What there is in EC2 is known by tags, so that our own records are never needed to find it again.
"""

from providers.aws.cloud import AwsCloud
from providers.aws.credentials import check_offline

__all__ = ["AwsCloud", "check_offline"]
