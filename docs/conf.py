"""How the pages are built: ``just docs``, warnings are errors."""

from __future__ import annotations

import tomllib
from pathlib import Path

_PROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]

project = "Forestay"
author = "The Forestay developers"
project_copyright = author
version = release = _PROJECT["version"]

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
root_doc = "index"

myst_heading_anchors = 3
myst_links_external_new_tab = False

nitpicky = True

html_theme = "furo"
html_title = f"Forestay {release}"
html_copy_source = False
html_show_sphinx = False
