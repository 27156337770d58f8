"""Tries policy files, for `starter policy test` and `starter policy replay`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from client.documents import UnreadableDocument, read_document
from domain.errors import Category, Refused
from domain.policycases import CaseDifference, PolicyCases, ReplayedRefusal, compare_cases, replay_actions
from domain.validation import refuse_validation_errors
from store.engine import Database
from store.replay import iterate_actions
from workers.access import load_policy
from workers.settings import WorkerSettings

CASES_HINT = "a list `cases` of subject, verb, path and expect (allow or deny): docs/security.md has an example"


def load_policy_cases(name: str) -> PolicyCases:
    """Loads a file of cases; refuses a malformed one."""
    try:
        with refuse_validation_errors(f"the cases {name} are not valid", CASES_HINT):
            return PolicyCases.model_validate(read_document(Path(name)) or {})
    except UnreadableDocument as error:
        raise Refused(Category.INVALID, f"the file {name} {error}", CASES_HINT) from error


def run_policy_cases(policy_file: str, cases_file: str) -> tuple[int, list[CaseDifference]]:
    """Asks a policy file about every case. Returns how many there are, and those that are answered otherwise."""
    cases = load_policy_cases(cases_file)
    return len(cases.cases), compare_cases(load_policy(policy_file), cases)


def replay_against_policy(settings: WorkerSettings, policy_file: str) -> Iterator[ReplayedRefusal]:
    """Yields the recorded actions of the store that a policy file would have refused."""
    policy = load_policy(policy_file)
    with closing(Database(settings.store_database_url())) as database, database.open_snapshot() as connection:
        yield from replay_actions(policy, iterate_actions(connection))
