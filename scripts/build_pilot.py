"""Build ``dist/holdfast-pilot.pyz``: the pilot as one file that any Python from 3.9 runs, with nothing to install.

The same sources give the same bytes, so that a digest can be published.
"""

from __future__ import annotations

import hashlib
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "holdfast_pilot"
_EPOCH = (1980, 1, 1, 0, 0, 0)
_MAIN = "import sys\nfrom holdfast_pilot.__main__ import main\nsys.exit(main())\n"


def build(target: Path) -> str:
    """Write the zip application and give its SHA-256."""
    target.parent.mkdir(parents=True, exist_ok=True)
    files = {"__main__.py": _MAIN.encode()}
    for path in sorted(SOURCE.rglob("*.py")):
        files[f"holdfast_pilot/{path.relative_to(SOURCE)}"] = path.read_bytes()
    with target.open("wb") as sink:
        sink.write(b"#!/usr/bin/env python3\n")
        with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in files.items():
                archive.writestr(zipfile.ZipInfo(name, _EPOCH), content, zipfile.ZIP_DEFLATED)
    target.chmod(0o755)
    return hashlib.sha256(target.read_bytes()).hexdigest()


if __name__ == "__main__":
    place = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist" / "holdfast-pilot.pyz"
    print(f"{build(place)}  {place}")
