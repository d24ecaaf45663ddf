"""The page of store errors is current, and no error is missing from it."""

from __future__ import annotations

import asyncpg  # type: ignore[import-untyped]
import pytest
from scripts.store_errors import PLACE, SQLSTATES, STATUSES, page, rows_of_opensearch, rows_of_postgres, rows_of_sqlite

pytestmark = pytest.mark.finding("F-B1")


def test_the_page_is_current() -> None:
    assert PLACE.read_text(encoding="utf-8") == page(), "run: just store-errors"


def test_every_class_that_postgres_has_is_there() -> None:
    known = {
        state[:2]
        for error in vars(asyncpg.exceptions).values()
        if isinstance(error, type) and isinstance(state := getattr(error, "sqlstate", None), str)
    }
    assert known
    assert known <= SQLSTATES.keys()


def test_only_errors_of_values_are_the_requests() -> None:
    """Everything that an operator can do to a store is the store's."""

    def theirs(rows: object) -> list[str]:
        return [row[0] for row in rows if row[2] == "the request"]  # type: ignore[attr-defined]

    assert theirs(rows_of_postgres()) == ["22", "23", "54"]
    assert theirs(rows_of_sqlite()) == ["`SQLITE_TOOBIG`", "`SQLITE_CONSTRAINT`", "`SQLITE_MISMATCH`"]
    fault = [row[2] for row in rows_of_opensearch()]
    by_kind = {(status, kind, reason): words for (status, kind, reason, _), words in zip(STATUSES, fault, strict=False)}
    assert {words for (status, _, _), words in by_kind.items() if status not in (400, 409, 413)} == {"the store"}
    for kind, word in (
        ("strict_dynamic_mapping_exception", ""),
        ("illegal_argument_exception", "mapper ["),
        ("index_closed_exception", ""),
    ):
        assert [words for (_, name, reason), words in by_kind.items() if name == kind and word in reason] == [
            "the store"
        ]
