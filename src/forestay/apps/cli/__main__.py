"""`python -m forestay.apps.cli`: only the commands for users."""

from __future__ import annotations

from forestay.apps.cli import app

app(prog_name="forestay")
