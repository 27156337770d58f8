"""Calls to EC2 in one region, in threads of its own, so that a hanging region blocks no other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from importlib import import_module
from math import inf
from typing import Any

from domain.errors import Rejected
from providers.aws.connection import AwsConnection
from providers.aws.credentials import open_session
from providers.aws.errors import Ec2CallRejected, translate_error
from providers.threads import SdkClient

THREADS_PER_REGION = 32  # at least the region's VMs in flight, and a few reads
PAGE_SIZE = 1_000
FIRST_PAUSE = 0.1


class Ec2Client(SdkClient):
    """EC2's API in one region. Never retries: its callers decide.

    Socket timeouts bound each call, well below the `call_seconds` of a whole order.
    """

    def __init__(self, connection: AwsConnection, call_seconds: float = inf) -> None:
        self._connection = connection
        self._connect_seconds = min(connection.options.connect_seconds, call_seconds / 4)
        self._read_seconds = min(connection.options.read_seconds, call_seconds / 2)
        bound_seconds = self._connect_seconds + self._read_seconds
        super().__init__(THREADS_PER_REGION, f"ec2-{connection.region}", bound_seconds)

    async def call_read_operation(self, operation: str, /, **arguments: Any) -> Any:
        """Makes a call that changes nothing."""
        return await self._run(self._call_in_thread, operation, arguments, False)

    async def call_change_operation(self, operation: str, /, **arguments: Any) -> Any:
        """Makes a call that changes something; after a failure its outcome may be unknown."""
        return await self._run(self._call_in_thread, operation, arguments, True)

    async def call_until_visible(self, operation: str, seconds: float, /, **arguments: Any) -> Any:
        """Changes a resource that was just created; retries while EC2 does not know it everywhere yet."""
        clock = asyncio.get_running_loop().time
        deadline, pause = clock() + seconds, FIRST_PAUSE
        while True:
            try:
                return await self.call_change_operation(operation, **arguments)
            except Ec2CallRejected as error:
                if not error.is_not_found or clock() + pause > deadline:
                    raise
            await asyncio.sleep(pause)
            pause *= 2

    async def read_all_pages(self, operation: str, key: str, /, **arguments: Any) -> list[Any]:
        """Returns all results of a `describe_…` call."""
        return [each async for page in self.iterate_pages(operation, key, **arguments) for each in page]

    async def iterate_pages(self, operation: str, key: str, /, **arguments: Any) -> AsyncIterator[list[Any]]:
        """Yields the results of a `describe_…` call, page by page."""
        token: dict[str, str] = {}
        while True:
            page = await self.call_read_operation(operation, MaxResults=PAGE_SIZE, **arguments, **token)
            yield page[key]
            if not page.get("NextToken"):
                return
            token = {"NextToken": page["NextToken"]}

    def _call_in_thread(self, operation: str, arguments: dict[str, Any], changing: bool) -> Any:
        client = self._connected_client()
        try:
            return getattr(client, operation)(**arguments)
        except Exception as error:
            known = translate_error(error, changing, self._secrets)
            if known is None:
                raise
            raise known from None  # the original error contains the signed request

    def _connect(self) -> Any:
        options = self._connection.options
        account = open_session(self._connection.credentials, self._connection.region)
        config = import_module("botocore.config").Config(
            connect_timeout=self._connect_seconds,
            read_timeout=self._read_seconds,
            retries={"total_max_attempts": 1},
            max_pool_connections=THREADS_PER_REGION,
            tcp_keepalive=True,
            user_agent_extra="ratchet",
        )
        self._secrets = _list_secrets(account)
        if options.account:
            self._check_account(account.client("sts", config=config, endpoint_url=options.endpoint_url or None))
        return account.client("ec2", config=config, endpoint_url=options.endpoint_url or None)

    def _check_account(self, client: Any) -> None:
        """Refuses credentials of another account: our VMs would not be found there, and count as gone."""
        try:
            found = str(client.get_caller_identity()["Account"])
        except Exception as error:
            raise translate_error(error, changing=False, secrets=self._secrets) or error from None
        if found != (wanted := self._connection.options.account):
            raise Rejected(f"the credentials are of the AWS account {found}, not of {wanted}: they are not used")


def _list_secrets(account: Any) -> list[str]:
    """Returns the strings that must never appear in a message."""
    try:
        keys = account.get_credentials()
        frozen = keys.get_frozen_credentials() if keys else None
    except Exception as error:
        known = translate_error(error, changing=False)
        raise known or error from None
    return [word for word in (frozen.secret_key, frozen.token, frozen.access_key) if word] if frozen else []
