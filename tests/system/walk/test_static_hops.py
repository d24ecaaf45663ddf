"""An editor follows a request from its route to its last file: every call into another file has a definition that jump-to-definition finds."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import jedi  # type: ignore[import-untyped]
import pytest
from tests.system.walk.recording import SOURCE, Hop, Walk
from tests.system.walk.scenes import walk_scenes

ROOT = SOURCE.parent.parent


@pytest.fixture(scope="module")
async def walks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Walk]:
    return await walk_scenes(tmp_path_factory.mktemp("walk"))


@pytest.mark.parametrize("scene", ["submission", "claim", "failure"])
async def test_every_hop_is_found_by_jump_to_definition(walks: dict[str, Walk], scene: str) -> None:
    hops = [hop for hop in walks[scene].hops if _is_step(hop)]
    assert len(hops) > 5
    lost = [f"{hop.caller}:{hop.line} -> {hop.callee} {hop.function}" for hop in hops if not _is_found(hop)]
    assert lost == []


def _is_step(hop: Hop) -> bool:
    """Whether a reader follows it: not into a value's property or operator, nor into a function that a caller on the way made itself."""
    *_, name = hop.function.split(".")
    return "<locals>" not in hop.function and not name.startswith("__") and not _is_property(hop)


def _is_found(hop: Hop) -> bool:
    *_, name = hop.function.split(".")
    for line, column in _calls(hop, name):
        for found in _script(hop.caller).goto(line, column, follow_imports=True):
            if found.module_path is None:
                continue
            path = Path(found.module_path)
            if path == SOURCE / hop.callee or _is_protocol_of(path, found.full_name or "", hop):
                return True
    return False


def _is_protocol_of(path: Path, method: str, hop: Hop) -> bool:
    """Whether the definition is that of a protocol which the class that was called names as its base: an editor lists its implementations."""
    *_, protocol, _ = ["", "", *method.split(".")]
    owner = _definition(hop.callee, hop.function.split(".")[0])
    bases = [ast.unparse(base) for base in owner.bases] if isinstance(owner, ast.ClassDef) else []
    return path.is_relative_to(SOURCE) and protocol in bases


def _is_property(hop: Hop) -> bool:
    owner, *rest = hop.function.split(".")
    known = _definition(hop.callee, owner)
    if not rest or not isinstance(known, ast.ClassDef):
        return False
    decorators = [
        ast.unparse(decorator)
        for child in known.body
        if isinstance(child, ast.FunctionDef) and child.name == rest[-1]
        for decorator in child.decorator_list
    ]
    return any(decorator.endswith("property") for decorator in decorators)


def _calls(hop: Hop, name: str) -> Iterator[tuple[int, int]]:
    """Where a name is called in the statement that made the hop."""
    for node in ast.walk(_tree(hop.caller)):
        if isinstance(node, ast.Call) and node.lineno <= hop.line <= (node.end_lineno or node.lineno):
            called = node.func
            if isinstance(called, ast.Attribute) and called.attr == name:
                yield called.end_lineno or called.lineno, (called.end_col_offset or 1) - 1
            elif isinstance(called, ast.Name):
                yield called.lineno, called.col_offset


def _definition(file: str, name: str) -> ast.stmt | None:
    for node in _tree(file).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            return node
    return None


@cache
def _tree(file: str) -> ast.Module:
    return ast.parse((SOURCE / file).read_text())


@cache
def _script(file: str) -> jedi.Script:
    return jedi.Script(path=SOURCE / file, project=jedi.Project(ROOT, added_sys_path=[str(ROOT / "src")]))
