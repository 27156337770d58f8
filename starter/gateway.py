"""`starter gateway`, `starter token`: the HTTP API, and the tokens of its callers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from domain.errors import Category, Refused
from starter import terminal
from starter.errors import Exit

if TYPE_CHECKING:
    from gateway.settings import GatewaySettings

GatewayPort = Annotated[int, Parameter(help="The port to listen on; 0 is any free one.")]
TokenName = Annotated[str, Parameter(help="Who will have the token: it is written into every record.")]
JwtDays = Annotated[
    int,
    Parameter(
        help="Make it a JWT that ends after so many days, for libcloud's gig_g8.", validator=Number(gte=0, lte=3650)
    ),
]


async def gateway(*, port: GatewayPort | None = None) -> Exit:
    """Serve the HTTP API until SIGTERM or SIGINT. `up` serves it too.

    Example: starter gateway --port 9000
    """
    from client.signals import stop_event
    from gateway.process import serve_alone

    settings = gateway_settings()
    if port is not None:
        settings = settings.model_copy(update={"gateway_port": port})
    async with serve_alone(settings) as (url, reads):
        stop = stop_event()
        terminal.print_story(f"Gateway   {url}/docs")
        terminal.print_story(f"  reads     are answered by {reads}")
        if settings.gateway_tokens is None:
            terminal.print_story(
                "  callers   are not proven: anybody on this machine may ask; see: starter token --help"
            )
        await stop.wait()
    return Exit.DONE


async def token(name: TokenName, /, *, jwt_days: JwtDays = 0) -> Exit:
    """Make a token for the HTTP API. It is printed once; the file gets its hash.

    Example: starter token ci
    """
    installed()
    from gateway.tokens import Token, hash_token, new_jwt, new_token

    expires = datetime.now(UTC).replace(microsecond=0) + timedelta(days=jwt_days) if jwt_days else None
    made = new_jwt(name, expires) if expires else new_token()
    line = Token(name=name, hash=hash_token(made), expires=expires)
    terminal.print_data(made)
    terminal.print_story(
        "This is the only time that the token is shown. Callers send it as: Authorization: Bearer TOKEN"
    )
    terminal.print_story("Put this line below `tokens:` in the file that RATCHET_GATEWAY_TOKENS names, with mode 600:")
    until = f", expires: {line.expires:%Y-%m-%dT%H:%M:%SZ}" if line.expires else ""
    terminal.print_story(f"  - {{name: {line.name}, hash: {line.hash}{until}}}")
    return Exit.DONE


def gateway_settings() -> GatewaySettings:
    """Read the gateway's settings from the environment, or raise Refused."""
    installed()
    from client.settings import load_settings
    from gateway.settings import GatewaySettings

    return load_settings(GatewaySettings)


def installed() -> None:
    """Raise Refused if the packages of the gateway are not installed."""
    if not (find_spec("fastapi") and find_spec("uvicorn")):
        raise Refused(Category.INVALID, "the gateway's packages are not installed", "install the extra `gateway`")
