"""Writes the JSON Schema of files of rules to the docs and into the package; with ``--check`` says whether it is current."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from forestay.formats.rules.rule_file_schema import rule_file_schema

_ROOT = Path(__file__).resolve().parent.parent
PLACES = (
    _ROOT / "docs" / "reference" / "rules.schema.json",
    _ROOT / "src" / "forestay" / "formats" / "rules" / "rules.schema.json",
)


def described() -> str:
    """The schema of the present code."""
    return json.dumps(rule_file_schema(), indent=1, ensure_ascii=False) + "\n"


def main() -> int:
    if "--check" in sys.argv[1:]:
        if all(place.exists() and place.read_text(encoding="utf-8") == described() for place in PLACES):
            return 0
        print("rules.schema.json is not current; run: just rules-schema", file=sys.stderr)
        return 1
    for place in PLACES:
        place.write_text(described(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
