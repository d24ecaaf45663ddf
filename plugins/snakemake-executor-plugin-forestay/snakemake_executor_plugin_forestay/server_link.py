"""The connection to the server: patient for calls that must succeed, quick for calls that are repeated anyway."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from forestay.client import ForestayClient, Patience
from forestay.client.api.calls import Call
from forestay.client.transport.errors import NotAllowed
from forestay.client.transport.settings import find_settings
from snakemake_executor_plugin_forestay.settings import DAY, ExecutorSettings

T = TypeVar("T")
Say = Callable[[str], None]
PAUSE = 15.0
"""Seconds before a refused token is read again."""


class ServerLink:
    """Calls the server with a token that may be replaced while a flow runs."""

    def __init__(self, settings: ExecutorSettings, say: Say) -> None:
        self._given, self._say = settings, say
        self.patience = float(DAY if settings.patience is None else settings.patience)
        self._token = ""
        self._open()

    @property
    def server(self) -> str:
        return self._quick.server

    def once(self, call: Call[T]) -> T:
        """Send a call, once: the caller repeats it itself."""
        try:
            return self._quick.send(call)
        except NotAllowed as error:
            if not (error.status == 401 and self._open()):
                raise
            return self._quick.send(call)

    def surely(self, call: Call[T]) -> T:
        """Send a call until it is answered, or the patience has ended. An expired token is waited for like a server."""
        since = time.monotonic()
        while True:
            try:
                return self._patient.send(call)
            except NotAllowed as error:
                if self._open() and error.status == 401:
                    continue
                if error.status != 401 or time.monotonic() - since + PAUSE > self.patience:
                    raise
                self._say(f"Forestay does not take your token ({error}); it is looked for again in {PAUSE:.0f} s")
                time.sleep(PAUSE)

    def now(self) -> str:
        """The time by the server's clock."""
        return self._quick.now().isoformat()

    def _open(self) -> bool:
        """Determine server and token again; returns whether the token has changed."""
        place = Path(self._given.token_file).expanduser() if self._given.token_file else None
        known = find_settings(server=self._given.server, token_file=place)
        if known.token.value == self._token:
            return False
        self._token = known.token.value
        self._quick = ForestayClient(known.server.value, self._token, patience=Patience(0.0))
        self._patient = ForestayClient(
            known.server.value, self._token, patience=Patience(self.patience), notice=self._say
        )
        return True
