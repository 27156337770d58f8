"""Seals history lines into a hash chain, in batches after their commit, and checks the chain.

Nobody who writes lines waits: a sealer takes lines in the order of the event feed, once every older transaction has
ended. A seal has the digest of each of its lines, so the chain can be checked after retention has removed lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC
from hashlib import sha256
from itertools import starmap
from json.encoder import encode_basestring as _quote
from typing import Any, NamedTuple

import sqlalchemy as sa

from domain.errors import format_count
from store.dbtime import read_database_time
from store.events import filter_ended_transactions
from store.schema import HistoryRow, SealRow, history, pruned, seals

LINES_PER_SEAL = 1_000
SEALS_PER_PAGE = 20
FIRST_HASH = "0" * 64
SEALER_LOCK = 7_328_113  # PostgreSQL's advisory lock of the one worker that seals
_LAST_SEAL = sa.select(seals).order_by(seals.c.number.desc()).limit(1)
_NEXT_SEALS = (
    sa.select(seals).where(seals.c.number > sa.bindparam("after")).order_by(seals.c.number).limit(SEALS_PER_PAGE)
)


class SealedLine(NamedTuple):
    """What a seal has of a line: enough to know it again, and to know whether retention may have removed it."""

    seq: int
    path: str
    epoch: int
    digest: str


class SealChainReport(NamedTuple):
    """What a check of the chain found. `head` is the newest seal's number and hash, to be kept elsewhere."""

    seals: int
    lines: int
    removed: int  # by retention
    head: str
    violations: list[str]


def canonical_line_text(line: HistoryRow) -> str:
    """Returns the text of a line whose hash is its digest: JSON with sorted keys and no spaces.

    By hand, as an action on ten thousand VMs has twenty thousand lines. Without `xid`, the database's own number, which
    a restored backup changes.
    """
    at = line.at.astimezone(UTC).isoformat(timespec="microseconds")
    return (
        f'{{"action":{_quote(line.action)},"actor":{_quote(line.actor)},"at":"{at}","effect":{_quote(line.effect)},'
        f'"epoch":{line.epoch},"message":{_quote(line.message)},"path":{_quote(line.path)},"seq":{line.seq},'
        f'"source":{_quote(line.source)},"to":{_quote(line.to)}}}'
    )


def chain_hash(previous: str, digests: list[str]) -> str:
    """Returns the hash of a seal, from the hash before it and its lines' digests."""
    return sha256("\n".join([previous, *digests]).encode()).hexdigest()


def seal_lines(connection: sa.Connection) -> int:
    """Seals the next lines, if no other worker is doing so. Returns how many."""
    if connection.dialect.name == "postgresql":
        turn = sa.select(sa.func.pg_try_advisory_xact_lock(sa.literal(SEALER_LOCK, sa.BigInteger)))
        if not connection.execute(turn).scalar_one():
            return 0
    before = connection.execute(_LAST_SEAL).one_or_none()
    last = SealRow(*before) if before else None
    query = filter_ended_transactions(connection, sa.select(history))
    if last:
        after = sa.tuple_(*(sa.literal(value, sa.BigInteger) for value in _last_sealed_position(connection, last)))
        query = query.where(after < sa.tuple_(history.c.xid, history.c.seq))
    rows = connection.execute(query.order_by(history.c.xid, history.c.seq).limit(LINES_PER_SEAL))
    lines = [HistoryRow(*row) for row in rows]
    if not lines:
        return 0
    sealed = [SealedLine(line.seq, line.path, line.epoch, _digest(line)) for line in lines]
    previous = last.hash if last else FIRST_HASH
    seal = SealRow(
        number=last.number + 1 if last else 1,
        at=read_database_time(connection),
        xid=lines[-1].xid,
        seq=lines[-1].seq,
        previous=previous,
        hash=chain_hash(previous, [line.digest for line in sealed]),
        lines=[list(line) for line in sealed],
    )
    connection.execute(sa.insert(seals), [seal._asdict()])
    return len(lines)


def check_chain(connection: sa.Connection, anchor: str = "") -> SealChainReport:
    """Checks every seal against the one before it, and every line against its digest. `anchor`: a head to find."""
    violations: list[str] = []
    before, number, counted, removed, last = FIRST_HASH, 0, 0, 0, None
    anchored = not anchor
    for seal in iterate_seals(connection):
        number += 1
        if seal.number != number:
            violations.append(f"seal {number} is missing: the next one is {seal.number}")
            number = seal.number
        sealed = [SealedLine(*line) for line in seal.lines]
        if seal.previous != before or seal.hash != chain_hash(seal.previous, [line.digest for line in sealed]):
            violations.append(f"seal {seal.number} does not fit the one before it, or its own lines")
        gone, wrong = _compare_lines(connection, seal.number, sealed)
        violations += wrong
        counted, removed, before, last = counted + len(sealed), removed + gone, seal.hash, seal
        anchored = anchored or anchor == format_seal_head(seal)
    if not anchored:
        violations.append(f"there is no seal {anchor}: the chain was cut or made anew")
    if last and (extra := _count_sealed_range(connection, last) - (counted - removed)) > 0:
        violations.append(f"put between sealed lines: {format_count(extra, 'line')}")
    return SealChainReport(number, counted, removed, format_seal_head(last) if last else "", violations)


def may_rewrite_history(connection: sa.Connection) -> bool:
    """Tells whether the database's user could change what has been written: on SQLite everybody can."""
    if connection.dialect.name != "postgresql":
        return True
    rights = [("history", "UPDATE"), ("audit_seals", "UPDATE"), ("audit_seals", "DELETE")]
    asked = sa.select(sa.or_(*(sa.func.has_table_privilege(table, right) for table, right in rights)))
    return bool(connection.execute(asked).scalar_one())


def format_seal_head(seal: SealRow) -> str:
    """Returns a seal's number and hash in one word."""
    return f"{seal.number}:{seal.hash}"


def iterate_seals(connection: sa.Connection, after: int = 0) -> Iterator[SealRow]:
    """Yields the seals in their order, page by page."""
    while page := [SealRow(*row) for row in connection.execute(_NEXT_SEALS, {"after": after})]:
        yield from page
        after = page[-1].number


def read_sealed_lines(connection: sa.Connection, seal: SealRow) -> dict[int, HistoryRow]:
    """Returns the lines of a seal that the history still has, by number."""
    return _read_lines(connection, [SealedLine(*line) for line in seal.lines])


def _read_lines(connection: sa.Connection, sealed: list[SealedLine]) -> dict[int, HistoryRow]:
    query = sa.select(history).where(history.c.seq.in_([line.seq for line in sealed]))
    return {row.seq: row for row in starmap(HistoryRow, connection.execute(query))}


def _compare_lines(connection: sa.Connection, number: int, sealed: list[SealedLine]) -> tuple[int, list[str]]:
    """Returns how many lines retention has removed, and what is wrong with the others."""
    there = _read_lines(connection, sealed)
    missing = [line for line in sealed if line.seq not in there]
    begins = _read_last_pruned_epochs(connection, {line.path for line in missing}) if missing else {}
    lost = [line for line in missing if line.epoch > begins.get(line.path, -1)]
    changed = [line for line in sealed if line.seq in there and _digest(there[line.seq]) != line.digest]
    wrong = [f"line {line.seq} of {line.path} was removed (seal {number})" for line in lost]
    wrong += [f"line {line.seq} of {line.path} was changed (seal {number})" for line in changed]
    return len(missing) - len(lost), wrong


def _read_last_pruned_epochs(connection: sa.Connection, paths: set[str]) -> dict[str, int]:
    query = sa.select(pruned.c.path, pruned.c.epoch).where(pruned.c.path.in_(sorted(paths)))
    return {row.path: row.epoch for row in connection.execute(query)}


def _last_sealed_position(connection: sa.Connection, seal: SealRow) -> tuple[int, int]:
    """Returns where the last seal ends now: a restored backup renumbers transactions."""
    now = connection.execute(sa.select(history.c.xid).where(history.c.seq == seal.seq)).scalar_one_or_none()
    return (seal.xid if now is None else now), seal.seq


def _count_sealed_range(connection: sa.Connection, last: SealRow) -> int:
    end: Any = sa.tuple_(*(sa.literal(value, sa.BigInteger) for value in _last_sealed_position(connection, last)))
    query = sa.select(sa.func.count()).select_from(history).where(sa.tuple_(history.c.xid, history.c.seq) <= end)
    return int(connection.execute(query).scalar_one())


def _digest(line: HistoryRow) -> str:
    return sha256(canonical_line_text(line).encode()).hexdigest()
