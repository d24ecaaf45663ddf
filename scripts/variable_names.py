"""Count the variables whose names say nothing of what they hold, by syntax tree.

uv run python scripts/variable_names.py           how often each name is bound, the total last
uv run python scripts/variable_names.py --where   the places too
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
EMPTY_NAMES = ("one", "item", "it", "thing", "x", "told", "said")
MOST = 50
"""Coordinates and hooks of other programs keep their names: a few are fine."""


def bindings(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Each place that binds a variable: its name and its line. A field of a class is one, a function is none."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name, node.lineno
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name, node.lineno
            case ast.MatchMapping(rest=str(name)) | ast.alias(asname=str(name)):
                yield name, node.lineno


def empty_names(root: Path = ROOT) -> list[tuple[str, str]]:
    """The places where such a name is bound: ``path:line`` and the name."""
    listed = subprocess.run(["git", "ls-files", "-z", "*.py"], cwd=root, capture_output=True, text=True, check=True)
    return [
        (f"{path}:{line}", name)
        for path in listed.stdout.split("\0")
        if path and (root / path).exists()
        for name, line in bindings(ast.parse((root / path).read_text(encoding="utf-8")))
        if name in EMPTY_NAMES
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--where", action="store_true", help="print the places too")
    places = empty_names()
    if parser.parse_args().where:
        for place, name in places:
            print(place, name)
    counts = Counter(name for _, name in places)
    for name in EMPTY_NAMES:
        print(f"{name:<6} {counts[name]:>5}")
    print(len(places))
    return 0 if len(places) <= MOST else 1


if __name__ == "__main__":
    sys.exit(main())
