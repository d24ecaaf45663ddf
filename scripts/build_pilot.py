"""Build ``dist/forestay-pilot.pyz``: the pilot as one file that any Python from 3.9 runs, with nothing to install.

The same sources give the same bytes, so that a digest can be published.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from forestay.adapters.system.pilot_program import pilot_program

ROOT = Path(__file__).resolve().parents[1]


def build(target: Path) -> str:
    """Write the zip application and give its SHA-256."""
    program = pilot_program()
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(program)
    target.chmod(0o755)
    return hashlib.sha256(program).hexdigest()


if __name__ == "__main__":
    place = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist" / "forestay-pilot.pyz"
    print(f"{build(place)}  {place}")
