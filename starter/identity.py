"""`starter login`, `logout`, `whoami`, `can`, `key new`, `sign`: who you are to the workers, and how to prove it."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from domain import registry, wire
from domain.errors import Category, Refused
from domain.identities import MAX_TOKEN
from domain.requests import AccessQuery, AccessView
from domain.validation import refuse_validation_errors
from starter import terminal
from starter.actions import parse_duration
from starter.errors import ExitCode
from starter.flags import OutputOption
from starter.kinds import SpecFile, read_spec_file
from starter.naming import compose_request, possible_paths
from starter.output import Sheet, print_sheet
from starter.session import load_settings, open_client

SIGNED_FOR = "1h"
TOKEN_VARIABLE = "RATCHET_OIDC_TOKEN"  # noqa: S105 - its name

key_app = App(name="key", help="Keys that prove who you are.")


async def login(
    *,
    file: Annotated[
        Path | None,
        Parameter(name=["--file", "-f"], help=f"A file with the token; else {TOKEN_VARIABLE} is read."),
    ] = None,
) -> ExitCode:
    """Log in with a token of your OIDC issuer. Commands then prove your name until the login ends.

    The workers' RATCHET_IDENTITIES lists the issuers. A token is good for one login.

    Example: starter login --file /var/run/secrets/tokens/ratchet
    """
    from activities import proofs
    from client.login import StoredLogin, save_login
    from client.session import connect
    from client.settings import ClientSettings
    from domain.identities import LoginOrder, Session

    class Anonymous(ClientSettings):
        """Settings of a client that speaks for nobody yet."""

        uses_login = False

    settings = Anonymous.model_validate(load_settings().model_dump())
    secret, public = proofs.generate_key_pair()
    with refuse_validation_errors("the token is not valid", "starter login --help"):
        order = LoginOrder(token=_read_token(file), key=public)
    async with connect(settings, "login") as client:
        session = await client.run_query(wire.LOGIN, order, Session)
        stored = StoredLogin(namespace=client.client.namespace, key=secret.decode(), session=session)
    save_login(settings.home, stored)
    until = datetime.fromtimestamp(session.expires, UTC)
    terminal.print_narration(f"logged in as {session.name}, by {session.issuer}, until {until:%Y-%m-%d %H:%M:%SZ}")
    return ExitCode.DONE


async def logout() -> ExitCode:
    """Forget the login of this home folder.

    Example: starter logout
    """
    from client.login import forget_login

    terminal.print_narration("logged out" if forget_login(load_settings().home) else "nobody was logged in")
    return ExitCode.DONE


def _read_token(file: Path | None) -> str:
    if file is None:
        token = os.environ.get(TOKEN_VARIABLE, "").strip()
    else:
        try:
            with file.open() as text:
                token = text.read(MAX_TOKEN + 1).strip()
        except (OSError, UnicodeDecodeError) as error:
            raise Refused(Category.INVALID, f"{file} cannot be read", "name a file with the token: --file") from error
    if not token:
        raise Refused(Category.INVALID, "there is no token", f"name a file with it: --file; or set {TOKEN_VARIABLE}")
    return token


async def whoami(*, output: OutputOption = "table") -> ExitCode:
    """Tell who you are to the workers: your name, whether it is proven, your groups and roles.

    Example: starter whoami
    """
    view = await _read_access(AccessQuery())
    roles = ", ".join(view.roles) or ("none" if view.has_policy else "there is no policy: everybody may do everything")
    cells = (view.name or "-", "proven" if view.proven else "claimed", ", ".join(view.groups), roles)
    print_sheet(Sheet(view.model_dump(mode="json"), ("NAME", "PROOF", "GROUPS", "ROLES"), [cells], [view.name]), output)
    return ExitCode.DONE


async def can(
    verb: Annotated[str, Parameter(help="An action, or read, cancel, verify, heal, inject, drain, ….")],
    path: Annotated[str, Parameter(help="The object; without it, everywhere.")] = "",
    /,
    *,
    force: Annotated[bool, Parameter(negative="", help="With force.")] = False,
) -> ExitCode:
    """Ask whether you may do something. Exit code 0: yes; 4: no, and why.

    Example: starter can suspend ns:default:mci:web
    """
    where = possible_paths(path)[0] if path else ""
    view = await _read_access(AccessQuery(verb=verb, path=where, force=force))
    if view.why:
        raise Refused(Category.FORBIDDEN, view.why, "starter whoami")
    terminal.print_narration(f"yes: {view.name or 'everybody'} may {verb} {where or 'everywhere'}")
    return ExitCode.DONE


@key_app.command(name="new")
async def generate_key_pair(
    name: Annotated[str, Parameter(help="Whose key it is, as records and the policy name them.")],
    /,
    *,
    file: Annotated[
        Path | None, Parameter(name=["--file", "-f"], help="Where to write it; by default in the home.")
    ] = None,
) -> ExitCode:
    """Make a private key. The file stays with you; its public key goes into the workers' RATCHET_IDENTITIES.

    Example: starter key new wanda
    """
    from activities import proofs

    path = file or load_settings().home / f"{name}.pem"
    secret, public = proofs.generate_key_pair()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            out.write(secret)
    except FileExistsError as error:
        raise Refused(Category.INVALID, f"{path} exists already", "choose another --file") from error
    except OSError as error:
        raise Refused(
            Category.INVALID, f"{path} cannot be written: {error.strerror}", "choose another --file"
        ) from error
    terminal.print_data(f"subjects:\n  {name}:\n    keys: [{public}]")
    terminal.print_narration("Put these lines into the file that RATCHET_IDENTITIES names on the workers. Then:")
    terminal.print_narration(f"  export RATCHET_KEY_FILE={path} RATCHET_SUBJECT={name}")
    return ExitCode.DONE


async def sign(
    kind: Annotated[str, Parameter(help="The kind of object, such as mci.")],
    action: Annotated[str, Parameter(help="The action, such as suspend.")],
    path: Annotated[str, Parameter(help="The object, such as default/web.")],
    /,
    *,
    file: SpecFile = "",
    force: Annotated[bool, Parameter(negative="", help="With force.")] = False,
    reason: Annotated[str, Parameter(help="Why, for the history.")] = "",
    within: Annotated[str, Parameter(help="How long it is good for, such as 10m or 24h.")] = SIGNED_FOR,
) -> ExitCode:
    """Print a signed request as JSON, to be pasted into Temporal's Web UI or sent by `temporal`. It is good once.

    Example: starter sign mci suspend default/web --within 10m
    """
    from client.login import load_session_signer
    from client.message_signer import load_signer
    from domain.exposure import OWN_ACTION
    from domain.paths import expand_path

    own = registry.find_kind(kind)
    request = compose_request(
        expand_path(path, own.scope),
        action,
        spec=read_spec_file(file),
        force=force,
        reason=reason,
        request_id=os.urandom(8).hex(),
    )
    async with open_client() as client:
        settings, seconds = load_settings(), parse_duration(within, "--within") or 0
        signer = load_signer(settings, client.client.namespace, seconds) or load_session_signer(
            settings.home, client.client.namespace, seconds
        )
    if signer is None:
        raise Refused(
            Category.INVALID, "there is no key to sign with", "starter login, or RATCHET_KEY_FILE: starter key new NAME"
        )
    signed = signer.sign(request, OWN_ACTION)
    terminal.print_data(signed.model_dump_json(exclude_defaults=True))
    verb = own.find_verb(action)
    workflow_id = registry.workflow_id_of(request.path, action)
    terminal.print_narration(
        f"workflow type {verb.workflow}, ID {workflow_id}, task queue {wire.ACTIONS_QUEUE}; good for {within}"
    )
    return ExitCode.DONE


async def _read_access(query: AccessQuery) -> AccessView:
    async with open_client() as client:
        return await client.run_query(wire.READ_ACCESS, query, AccessView)
