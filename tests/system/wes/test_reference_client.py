"""The reference client of the Workflow Execution Service, as it is published and unchanged, in an environment of its own.

Its `--run` sends no header of ours at all; the token reaches the server as the password of the host in the user's netrc file, which its HTTP library reads.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.live.run_site import TENANT
from tests.system.wes.conftest import WesSite
from tests.system.wes.flows import GREET

pytestmark = [pytest.mark.live]
CLIENT = ("uvx", "--quiet", "--from", "wes-service==5.0", "wes-client")


async def _client(environment: Mapping[str, str], *words: str) -> tuple[int, str, str]:
    made = await asyncio.create_subprocess_exec(
        *CLIENT,
        *words,
        env={**os.environ, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(made.communicate(), 180)
    assert made.returncode is not None
    return made.returncode, out.decode(), err.decode()


async def test_the_reference_client_runs_a_flow_lists_and_reads_logs(wes: WesSite, tmp_path: Path) -> None:
    url = urlsplit(wes.site.server.url)
    token = wes.site.domain.token("submitter", tenant=TENANT, subject="ada")
    netrc = tmp_path / "netrc"
    netrc.write_text(f"machine {url.hostname} login anyone password {token}\n")
    netrc.chmod(0o600)
    environment = {"WES_API_HOST": url.netloc, "WES_API_PROTO": "http", "WES_API_AUTH": f"Bearer {token}"}
    environment |= {"NETRC": str(netrc), "NO_PROXY": "*"}

    order = tmp_path / "order.json"
    order.write_text('{"who": "the client"}')
    code, out, err = await _client(environment, str(wes.flows / "greeting.py"), str(order))
    assert code == 0, err
    assert json.loads(out) == {"code": 0}
    assert "State is COMPLETE" in err

    run = await wes.run(GREET)
    assert await wes.ended(run) == "COMPLETE"
    code, out, err = await _client(environment, "--list")
    assert code == 0, err
    assert run in {other_run["run_id"] for other_run in json.loads(out)["runs"]}
    code, out, err = await _client(environment, "--log", run)
    assert "hello" in out, err
