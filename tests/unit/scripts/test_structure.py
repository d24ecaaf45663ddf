"""A newcomer finds their way: a question is answered by one search for the field's word, a name has one meaning, and imports go one way."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SRC = ROOT / "src"
PACKAGES = (SRC, ROOT / "plugins" / "forestay-bpel")
"""The folders of what is one program when it is installed."""
FILES = [path for folder in PACKAGES for path in folder.rglob("*.py")]
PAGES = ROOT / "web" / "src"
FIRST = 5
MOST_FILES = 24

QUESTIONS = [
    ("Where are heartbeats received?", "heartbeat", "services/pilots/heartbeats.py"),
    ("Where is a retry's wait decided?", "retry", "domain/exceptions/incidents/retry_policy.py"),
    ("Where does a notification leave?", "notif", "services/operations/notifier.py"),
    ("Where is a job claimed?", "claim", "domain/jobs/claim.py"),
    ("Where are orphans found?", "orphan", "services/pilots/orphan_scanner.py"),
    ("Where is a rule replayed over past failures?", "replay", "services/rules/rule_replay.py"),
    ("Where does an action wait for an approval?", "approval", "services/exceptions/safeguards/approvals.py"),
    ("Where is a failure storm detected?", "storm", "domain/exceptions/safeguards/storm.py"),
    ("Where is a callback sent?", "callback", "services/jobs/callback_sender.py"),
    ("Where is a request authenticated?", "authenticat", "services/operations/authenticator.py"),
]


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8").lower()


@cache
def parsed(path: Path) -> list[ast.stmt]:
    return ast.parse(path.read_text(encoding="utf-8")).body


def hits(word: str) -> list[str]:
    """The first files that a search for a word finds: by their names, then by how often it is in them."""
    found = []
    for path in SRC.rglob("*.py"):
        times = text_of(path).count(word)
        if times or word in path.stem:
            found.append((word not in path.stem, -times, path.relative_to(SRC).as_posix().removeprefix("forestay/")))
    return [name for _, _, name in sorted(found)[:FIRST]]


@pytest.mark.parametrize(("question", "word", "answer"), QUESTIONS, ids=[word for _, word, _ in QUESTIONS])
def test_a_question_is_answered_by_one_search(question: str, word: str, answer: str) -> None:
    assert answer in hits(word), question


def test_no_two_classes_have_one_name() -> None:
    names = Counter(
        node.name
        for path in FILES
        for node in parsed(path)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert {name: times for name, times in names.items() if times > 1} == {}


def test_no_folder_is_crowded() -> None:
    files = Counter(path.parent.relative_to(ROOT).as_posix() for path in FILES)
    assert {folder: number for folder, number in files.items() if number > MOST_FILES} == {}


def imports(body: list[ast.stmt]) -> Iterator[str]:
    """What a module imports when it is imported itself, and not only for its types."""
    for node in body:
        match node:
            case ast.ImportFrom(module=str(module), names=names):
                yield from (f"{module}.{name.name}" for name in names)
            case ast.Import(names=names):
                yield from (name.name for name in names)
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), orelse=orelse):
                yield from imports(orelse)
            case ast.If(body=inner, orelse=orelse) | ast.Try(body=inner, orelse=orelse):
                yield from imports([*inner, *orelse])


def test_no_module_imports_itself_by_a_detour() -> None:
    modules = {
        ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__"): path
        for folder in PACKAGES
        for path in folder.rglob("*.py")
    }
    graph: dict[str, set[str]] = {}
    for name, path in modules.items():
        named = imports(parsed(path))
        found = {word if word in modules else word.rpartition(".")[0] for word in named}
        graph[name] = found & modules.keys() - {name}
    assert len(list(TopologicalSorter(graph).static_order())) == len(modules)


def test_no_part_of_the_pages_imports_itself_by_a_detour() -> None:
    files = {path.with_suffix(""): path for path in PAGES.rglob("*.ts*")}
    graph: dict[Path, set[Path]] = {}
    for name, path in files.items():
        relative = re.findall(r"""from ['"](\.{1,2}/[^'"]+)['"]""", path.read_text())
        graph[name] = {found for word in relative if (found := (path.parent / word).resolve()) in files}
    assert any(graph.values())
    assert len(list(TopologicalSorter(graph).static_order())) == len(files)


def test_no_test_replaces_a_part_of_a_standard_module() -> None:
    """Reached through another module's name, it is replaced for all: a sleep that does not wait makes every other task spin, and nothing else runs."""
    whole = re.compile(r"""setattr\(\s*(?:["'][\w.]+\.(?:asyncio|time|threading)\.|(?:asyncio|time|threading), )""")
    found = [path.name for path in (ROOT / "tests").rglob("*.py") if whole.search(path.read_text(encoding="utf-8"))]
    assert not found
