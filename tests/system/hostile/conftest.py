"""The fixtures of the servers."""

from tests.unit.apps.server.fixtures import *  # noqa: F403 - pytest finds fixtures by name
