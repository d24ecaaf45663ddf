"""Builds the pilot as one file that runs on any Python from 3.9, from the installed sources.

The same sources give the same bytes, so that a digest can be published and a copy is made once.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import forestay_pilot

_EPOCH = (1980, 1, 1, 0, 0, 0)
_MAIN = "import sys\nfrom forestay_pilot.__main__ import main\nsys.exit(main())\n"


def pilot_program() -> bytes:
    """The zip application, with the line that lets a shell start it."""
    source = Path(forestay_pilot.__file__).parent
    files = {"__main__.py": _MAIN.encode()}
    for path in sorted(source.rglob("*.py")):
        files[f"forestay_pilot/{path.relative_to(source)}"] = path.read_bytes()
    sink = io.BytesIO()
    sink.write(b"#!/usr/bin/env python3\n")
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), content, zipfile.ZIP_DEFLATED)
    return sink.getvalue()
