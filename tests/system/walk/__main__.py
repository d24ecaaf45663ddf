"""`python -m tests.system.walk [--write]`: the files that a submission, a claim and a failure enter, in order, and how often the reader changes file."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.system.walk.recording import SOURCE, Walk
from tests.system.walk.scenes import walk_scenes

PAGE = SOURCE.parent.parent / "docs" / "explanation" / "where-things-are.md"
BEGIN, END = "<!-- just walk -->\n", "<!-- end -->\n"
WORDS = {
    "submission": "A submission",
    "claim": "A claim",
    "failure": "A failure that a rule answers",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write it into docs/explanation/where-things-are.md")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        walks = asyncio.run(walk_scenes(Path(folder)))
    text = "".join(f"{line}\n" for name, walk in walks.items() for line in _lines(WORDS[name], walk))
    sys.stdout.write(text)
    if given.write:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        _, _, after = rest.partition(END)
        PAGE.write_text(f"{before}{BEGIN}\n{text}{END}{after}")
    return 0


def _lines(words: str, walk: Walk) -> list[str]:
    """Each folder's files once, in the order in which they are entered."""
    folders: list[tuple[str, list[str]]] = []
    for file in walk.files:
        folder, _, name = file.rpartition("/")
        if not folders or folders[-1][0] != folder:
            folders.append((folder, []))
        folders[-1][1].append(name.removesuffix(".py"))
    files = "; ".join(f"`{folder}`: {', '.join(names)}" for folder, names in folders)
    return [f"**{words}** enters {len(walk.files)} files and changes file {walk.changes} times. {files}.", ""]


if __name__ == "__main__":
    sys.exit(main())
