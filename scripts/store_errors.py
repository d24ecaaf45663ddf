"""Writes what each error of a store means to docs/reference/store-errors.md, as the adapters decide it; with ``--check`` says whether it is current."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

from opensearchpy.exceptions import ConnectionError as VendorConnectionError
from opensearchpy.exceptions import TransportError

from forestay.adapters.opensearch import answers
from forestay.adapters.sql import errors
from forestay.ports.errors import Conflict, NotFound, Permanent, PortError

PLACE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "store-errors.md"

SQLSTATES = {
    "00": "successful completion", "01": "warning", "02": "no data", "03": "statement not yet complete", "08": "connection exception",
    "09": "triggered action exception", "0A": "feature not supported", "0B": "invalid transaction initiation", "0F": "locator exception",
    "0L": "invalid grantor", "0P": "invalid role specification", "0Z": "diagnostics exception", "10": "XQuery error", "20": "case not found",
    "21": "cardinality violation", "22": "data exception: a value cannot be stored", "23": "integrity constraint violation", "24": "invalid cursor state",
    "25": "invalid transaction state, such as a read-only database", "26": "invalid statement name", "27": "triggered data change violation",
    "28": "invalid authorization, such as a changed password", "2B": "dependent privileges still exist", "2D": "invalid transaction termination",
    "2F": "SQL routine exception", "34": "invalid cursor name", "38": "external routine exception", "39": "external routine invocation exception",
    "3B": "savepoint exception", "3D": "invalid catalog name: the database is gone", "3F": "invalid schema name", "40": "transaction rollback: deadlock, serialization",
    "42": "syntax error or access rule violation: a missing table, a wrong search path, a missing right", "44": "with check option violation",
    "53": "insufficient resources: disk full, out of memory, too many connections", "54": "program limit exceeded: a value is too long", "55": "object not in the needed state",
    "57": "operator intervention: shutdown, cancelled query", "58": "system error outside PostgreSQL: I/O error, missing file", "72": "snapshot too old",
    "F0": "configuration file error", "HV": "foreign data wrapper error", "P0": "PL/pgSQL error", "XX": "internal error: corrupt data or index",
}  # fmt: skip
SQLITE_CODES = {
    "ERROR": "generic: a missing table, SQL that does not fit the file", "INTERNAL": "internal error", "PERM": "access mode cannot be had", "ABORT": "aborted by a callback",
    "BUSY": "another process writes", "LOCKED": "a table is locked", "NOMEM": "out of memory", "READONLY": "the file or its folder is read-only", "INTERRUPT": "interrupted",
    "IOERR": "I/O error of the disk", "CORRUPT": "damaged pages", "NOTFOUND": "unknown opcode", "FULL": "the disk is full", "CANTOPEN": "the file cannot be opened: moved, no right",
    "PROTOCOL": "locking protocol", "SCHEMA": "the schema changed under a statement", "TOOBIG": "a value is too long", "CONSTRAINT": "constraint violation",
    "MISMATCH": "a value has the wrong type", "MISUSE": "library misuse", "NOLFS": "no large files", "AUTH": "not authorized", "RANGE": "wrong parameter number",
    "NOTADB": "the file is no database",
}  # fmt: skip
STATUSES: tuple[tuple[int, str, str, str], ...] = (
    (400, "mapper_parsing_exception", "failed to parse field", "a value does not fit its field"),
    (400, "document_parsing_exception", "failed to parse field", "the same, of newer versions"),
    (400, "strict_dynamic_mapping_exception", "mapping set to strict", "the mapping lacks a field of ours: another release or program made the index"),
    (400, "illegal_argument_exception", "mapper [state] cannot be changed from type [keyword] to [long]", "a mapping conflict"),
    (400, "illegal_argument_exception", "no write index is defined for alias [forestay-jobs]", "an alias was changed"),
    (400, "illegal_argument_exception", "the value is too long", "a value is refused"),
    (400, "index_closed_exception", "closed", "an index is closed"),
    (400, "too_many_clauses", "maxClauseCount is set to 1024", "a search with too many words"),
    (401, "security_exception", "missing authentication credentials", "the password changed"),
    (403, "security_exception", "no permissions", "a right was taken away"),
    (403, "cluster_block_exception", "index [forestay-jobs-000001] blocked", "a full disk, a read-only index, no cluster manager"),
    (404, "index_not_found_exception", "no such index", "an index or alias is gone"),
    (405, "method_not_allowed", "", "something else answers at the address"),
    (408, "request_timeout", "", "the cluster is slow"),
    (409, "version_conflict_engine_exception", "version conflict", "another writer was first"),
    (413, "request_entity_too_large", "", "the request is too long"),
    (429, "circuit_breaking_exception", "Data too large", "out of memory, or too many requests"),
    (500, "exception", "", "internal error, damaged index"),
    (502, "bad_gateway", "", "a proxy found no node"),
    (503, "no_shard_available_action_exception", "", "a shard has no readable copy"),
    (504, "gateway_timeout", "", "a node did not respond"),
)  # fmt: skip

_HEAD = """# Errors of a store

What each error of a store means here. `just store-errors` writes this page from the code that decides it, and a test compares them.

- **the request**: the values of this one request cannot be stored. It is answered 400, and whoever sent it may discard it. A pilot nevertheless keeps the completion of a job that succeeded, and sends it again.
- **the store**: the request was right and the store is not as it should be. It is answered 503 and sent again until it is stored; the server logs `store error` with operation and cause, counts
  it in `forestay_store_errors_total`, and `forestay doctor` names what it can see. Nothing is lost and no finished job runs again: pilots keep completions on disk until a server has stored them.
- **another writer**: the version check failed; the document is read again, and the decision is made again.

At start and in `forestay doctor` the set-up itself is checked. An error marked *stops the start* ends the process with the cause instead of waiting for the store.
"""


class _PostgresError(Exception):
    def __init__(self, state: str) -> None:
        super().__init__(state)
        self.sqlstate = state


def rows_of_postgres() -> Iterator[tuple[str, str, str, str]]:
    for state, name in SQLSTATES.items():
        error = _PostgresError(f"{state}000")
        yield state, name, _words(errors.meaning(error)), _at_start(errors.meaning(error, checking_setup=True))


def rows_of_sqlite() -> Iterator[tuple[str, str, str, str]]:
    for code, name in SQLITE_CODES.items():
        error = sqlite3.OperationalError(code)
        error.sqlite_errorcode = getattr(sqlite3, f"SQLITE_{code}")
        yield (
            f"`SQLITE_{code}`",
            name,
            _words(errors.meaning(error)),
            _at_start(errors.meaning(error, checking_setup=True)),
        )


def rows_of_opensearch() -> Iterator[tuple[str, str, str, str]]:
    for status, kind, reason, name in STATUSES:
        error = TransportError(status, kind, {"error": {"root_cause": [{"type": kind, "reason": reason}]}})
        shown = f"{status} `{kind}`"
        yield (
            shown,
            name,
            _words(answers.meaning(error, "x")),
            _at_start(answers.meaning(error, "x", checking_setup=True)),
        )
    away = VendorConnectionError("N/A", "refused", OSError())
    yield "no response", "refused, reset, timed out", _words(answers.meaning(away, "x")), "–"


def page() -> str:
    """The page for the present code."""
    parts = [_HEAD]
    for title, first, rows in (
        ("PostgreSQL", "SQLSTATE class", rows_of_postgres()),
        ("SQLite", "result code", rows_of_sqlite()),
        ("OpenSearch", "status and type", rows_of_opensearch()),
    ):
        table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
        parts.append(
            f"\n## {title}\n\n| {first} | what it is | whose fault | at start |\n| --- | --- | --- | --- |\n{table}\n"
        )
    parts.append(
        "\nA connection that is refused, reset or times out, and every error that is not listed, is the store's.\n"
    )
    return "".join(parts)


def _words(error: PortError) -> str:
    if isinstance(error, Conflict):
        return "another writer"
    return "the request" if isinstance(error, Permanent) else "the store"


def _at_start(error: PortError) -> str:
    return "stops the start" if isinstance(error, Permanent | NotFound) else "–"


def main() -> int:
    if "--check" in sys.argv[1:]:
        if PLACE.exists() and PLACE.read_text(encoding="utf-8") == page():
            return 0
        print(f"{PLACE.name} is not current; run: just store-errors", file=sys.stderr)
        return 1
    PLACE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
