"""`python -m forestay.apps.cli`: the verbs for users alone."""

from __future__ import annotations

from forestay.apps.cli import app

app(prog_name="forestay")
