"""`starter gateway`, `starter token`: the HTTP API, and the tokens of its callers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from domain.errors import Category, Refused
from starter import terminal
from starter.errors import ExitCode

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


async def gateway(*, port: GatewayPort | None = None) -> ExitCode:
    """Serve the HTTP API until SIGTERM or SIGINT. `up` serves it too.

    Example: starter gateway --port 9000
    """
    from client.stopsignals import make_stop_event
    from gateway.process import serve_standalone

    settings = gateway_settings()
    if port is not None:
        settings = settings.model_copy(update={"gateway_port": port})
    async with serve_standalone(settings) as (url, reads):
        stop = make_stop_event()
        terminal.print_narration(f"Gateway   {url}/docs")
        terminal.print_narration(f"  reads     are answered by {reads}")
        if settings.gateway_tokens is None:
            terminal.print_narration(
                "  callers   are not proven: anybody on this machine may ask; see: starter token --help"
            )
        await stop.wait()
    return ExitCode.DONE


async def token(name: TokenName, /, *, jwt_days: JwtDays = 0) -> ExitCode:
    """Make a token for the HTTP API. It is printed once; the file gets its hash.

    Example: starter token ci
    """
    check_gateway_installed()
    from gateway.tokens import TokenOwner, generate_jwt_token, generate_token, hash_token

    expires = datetime.now(UTC).replace(microsecond=0) + timedelta(days=jwt_days) if jwt_days else None
    made = generate_jwt_token(name, expires) if expires else generate_token()
    line = TokenOwner(name=name, hash=hash_token(made), expires=expires)
    terminal.print_data(made)
    terminal.print_narration(
        "This is the only time that the token is shown. Callers send it as: Authorization: Bearer TOKEN"
    )
    terminal.print_narration(
        "Put this line below `tokens:` in the file that RATCHET_GATEWAY_TOKENS names, with mode 600:"
    )
    until = f", expires: {line.expires:%Y-%m-%dT%H:%M:%SZ}" if line.expires else ""
    terminal.print_narration(f"  - {{name: {line.name}, hash: {line.hash}{until}}}")
    return ExitCode.DONE


def gateway_settings() -> GatewaySettings:
    """Read the gateway's settings from the environment, or raise Refused."""
    check_gateway_installed()
    from client.settings import load_settings
    from gateway.settings import GatewaySettings

    return load_settings(GatewaySettings)


def check_gateway_installed() -> None:
    """Raise Refused if the packages of the gateway are not installed."""
    if not (find_spec("fastapi") and find_spec("uvicorn")):
        raise Refused(Category.INVALID, "the gateway's packages are not installed", "install the extra `gateway`")
