"""The fixtures of the servers, and of the stores alone."""

from tests.contract.conftest import adapter, another, delete_indexes, room, stores  # noqa: F401 - pytest finds fixtures by name
from tests.unit.apps.server.fixtures import *  # noqa: F403 - pytest finds fixtures by name
