"""No kind of document is stored without a row in the table of retention, and no row is without a remover or a reason."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from forestay.services.operations.stored_kinds import ELSEWHERE, KINDS, Growth, Place

SOURCE = Path(__file__).parents[4] / "src" / "forestay"
SETTINGS = ("keep_days", "keep_incidents_days", "keep_keys_days", "keep_audit_days")
VARIABLES: dict[tuple[str, str], tuple[str, ...]] = {
    ("services/exceptions/engines/engine_commands.py", "kind"): ("engine-run-ended", "engine-run:*"),
    ("services/data/stored_catalogue.py", "kind"): ("replica", "replica-none"),
    ("services/jobs/job_completions.py", "kind"): ("evidence", "log", "staging", "late-completion"),
    ("services/operations/token_revocations.py", "kind"): ("ended-session", "revoked-token"),
    ("services/peers/run_placement.py", "kind"): ("placing-over", "placing-here", "placing@*"),
    ("services/peers/run_placement.py", "_left_at(placed.at)"): ("placing-left@*",),
    ("services/pilots/pilot_launches.py", "kind"): ("launch:*", "launch-ended:*"),
    ("services/shared/versioned_documents.py", "self.kind"): ("playbook", "compensation"),
    ("services/shared/versioned_documents.py", "f'{self.kind}-version'"): ("playbook-version", "compensation-version"),
}
"""Kinds that are not written as a constant where documents are made: by module and expression."""


class Made(NamedTuple):
    place: Place
    kind: str
    module: str


def _values(node: ast.expr, module: ModuleType, name: str) -> Iterator[str]:
    """The kinds that an expression may have."""
    text = ast.unparse(node)
    if isinstance(node, ast.IfExp):
        yield from _values(node.body, module, name)
        yield from _values(node.orelse, module, name)
    elif isinstance(node, ast.Constant):
        yield str(node.value)
    elif (name, text) in VARIABLES:
        yield from VARIABLES[name, text]
    elif isinstance(node, ast.Name) and isinstance(getattr(module, node.id, None), str):
        yield str(getattr(module, node.id))
    else:
        pytest.fail(f"{name}:{node.lineno}: the kind {text} is no constant; name its values in VARIABLES")


def _made() -> Iterator[Made]:
    """Every kind of which a document or a record is made anywhere."""
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if name.startswith(("ports/", "adapters/sql/", "adapters/opensearch/")):
            continue
        tree = ast.parse(path.read_text())
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        module = None
        for call in calls:
            called = call.func.id if isinstance(call.func, ast.Name) else ""
            rewritten = isinstance(call.func, ast.Attribute) and call.func.attr == "_replace"
            if called not in ("Document", "Record") and not rewritten:
                continue
            named = {keyword.arg: keyword.value for keyword in call.keywords}
            kind = call.args[2] if not rewritten and len(call.args) > 2 else named.get("kind")
            if kind is None:
                continue
            module = module or importlib.import_module(f"forestay.{name.removesuffix('.py').replace('/', '.')}")
            place = Place.RECORDS if called == "Record" else Place.DOCUMENTS
            yield from (Made(place, value, name) for value in _values(kind, module, name))


def test_every_kind_that_is_stored_has_a_row_and_every_row_is_stored() -> None:
    made = {(place, kind) for place, kind, _ in _made()}
    table = {(row.place, row.kind) for row in KINDS if row.place in (Place.RECORDS, Place.DOCUMENTS)}
    assert made - table == set(), "give these a row with a remover in services/operations/stored_kinds.py"
    assert table - made == set(), "these are not stored any more"


def test_a_row_names_a_module_that_writes_the_kind() -> None:
    writers: dict[tuple[Place, str], set[str]] = {}
    for place, kind, module in _made():
        writers.setdefault((place, kind), set()).add(module)
    wrong = {
        row.kind: writers[row.place, row.kind]
        for row in KINDS
        if (row.place, row.kind) in writers and row.written not in writers[row.place, row.kind]
    }
    assert wrong == {}


def test_what_grows_has_a_remover_or_a_reason() -> None:
    for row in KINDS:
        assert row.after, row.kind
        if not row.removed:
            assert row.growth in (Growth.PEOPLE, Growth.NONE), (
                f"{row.kind} grows with {row.growth} and nothing removes it"
            )
    assert all(place.removed and place.after for place in ELSEWHERE)


def test_the_table_names_what_exists() -> None:
    for row in KINDS:
        for module in filter(None, (row.written, row.read, row.removed)):
            assert (SOURCE / module).is_file(), module
    assert len({(row.place, row.kind) for row in KINDS}) == len(KINDS)
    # Every store of the ports has rows.
    assert {row.place for row in KINDS} == set(Place)
    settings = (SOURCE / "apps" / "config" / "settings.py").read_text()
    named = {word for row in KINDS for word in re.findall(r"keep_\w+", row.after)}
    assert named == set(SETTINGS)
    assert all(f"    {name}: int" in settings for name in SETTINGS)


def test_every_table_of_the_sql_store_and_every_index_has_a_place() -> None:
    """A new table is a new kind."""
    from forestay.adapters.opensearch.indexes import FIELDS
    from forestay.adapters.sql.tables import metadata

    tables = {
        "jobs", "specifications", "records", "documents", "incident_status", "papers", "pilots", "heartbeats", "audit",
    }  # fmt: skip
    assert metadata.tables.keys() - {"layout"} == tables == FIELDS.keys()


@pytest.mark.parametrize("text", ["Document(n, t, kind, b)", "Record(n, t, self.other, j, a, b)"])
def test_a_kind_that_cannot_be_read_from_the_code_is_reported(text: str) -> None:
    call = ast.parse(text).body[0]
    assert isinstance(call, ast.Expr)
    assert isinstance(call.value, ast.Call)
    with pytest.raises(pytest.fail.Exception, match="no constant"):
        list(_values(call.value.args[2], ModuleType("m"), "m.py"))
