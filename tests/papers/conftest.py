"""The fixtures of the servers."""

from tests.server.fixtures import *  # noqa: F403 - pytest finds fixtures by name
