"""`python -m tests.system.walk`: the files that a submission, a claim and a failure enter, in order, and how often the reader changes file."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from tests.system.walk.scenes import walk_scenes


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        walks = asyncio.run(walk_scenes(Path(folder)))
    for name, walk in walks.items():
        sys.stdout.write(f"{name}: {len(walk.files)} files, {walk.changes} changes of file\n")
        for file in walk.files:
            sys.stdout.write(f"  {walk.entered.count(file):4} {file}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
