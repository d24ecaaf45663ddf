"""`python -m holdfast.apps.cli`: the verbs for users alone."""

from __future__ import annotations

from holdfast.apps.cli import app

app(prog_name="holdfast")
