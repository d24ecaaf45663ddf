"""Writes the JSON Schema of flows to docs/reference/flow.schema.json; with ``--check`` says whether it is current."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from forestay.formats.flows.flow_schema import flow_schema

PLACE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "flow.schema.json"


def described() -> str:
    """The schema of the present code."""
    return json.dumps(flow_schema(), indent=1, ensure_ascii=False) + "\n"


def main() -> int:
    if "--check" in sys.argv[1:]:
        if PLACE.exists() and PLACE.read_text(encoding="utf-8") == described():
            return 0
        print(f"{PLACE.name} is not current; run: just flow-schema", file=sys.stderr)
        return 1
    PLACE.write_text(described(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
