"""The command line as its own tests run it."""

from tests.unit.apps.cli.conftest import api, forestay, lonely

__all__ = ["api", "forestay", "lonely"]
