"""The page that shows a newcomer where things are names files and folders that exist, and every capability."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "explanation" / "where-things-are.md").read_text()


def test_every_path_on_the_page_exists() -> None:
    paths = [path for path in re.findall(r"`([a-z_/]+(?:\.py)?)`", TEXT) if "/" in path]
    assert len(paths) > 60
    missing = [path for path in paths if not (ROOT / path).exists() and not (ROOT / "src" / "forestay" / path).exists()]
    assert missing == []


def test_every_capability_is_on_the_page() -> None:
    folders = {
        path.name for path in (ROOT / "src" / "forestay" / "services").iterdir() if (path / "__init__.py").exists()
    }
    assert folders == {name for name in folders if f"| `{name}` |" in TEXT}
