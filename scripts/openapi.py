"""Writes the interface's own description to docs/reference/openapi.json; with ``--check`` says whether it is current."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from forestay.apps.compose.components import make_components
from forestay.apps.compose.server import ServerComponents
from forestay.apps.config.settings import Settings
from forestay.apps.server.app import make_app

PLACE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "openapi.json"


def described() -> str:
    """The description of the present code; nothing is started or stored for it."""
    with TemporaryDirectory() as state:
        api = make_app(ServerComponents(make_components(Settings(state=Path(state))))).openapi()
    return json.dumps(api, indent=1, ensure_ascii=False) + "\n"


def main() -> int:
    if "--check" in sys.argv[1:]:
        if PLACE.exists() and PLACE.read_text(encoding="utf-8") == described():
            return 0
        print(f"{PLACE.name} is not current; run: just openapi", file=sys.stderr)
        return 1
    PLACE.write_text(described(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
