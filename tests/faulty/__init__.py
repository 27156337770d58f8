"""EC2 with the faults of the real one: moto behind a wrapper of ours."""

from tests.faulty.ec2 import FaultyEc2
from tests.faulty.server import PREFIX, Moto, running

__all__ = ["PREFIX", "FaultyEc2", "Moto", "running"]
