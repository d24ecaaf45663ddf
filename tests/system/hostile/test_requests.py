"""Requests that are meant to hurt the server or to learn something from it."""

from __future__ import annotations

import gzip
import resource
import time
from statistics import median

import pytest
from tests.unit.apps.server.asks import TRUE, problem
from tests.unit.apps.server.running import RunningServer

from forestay.ports.operations.identity import BadToken

FEW = 256 * 1024
"""KiB that a refused request may cost at most; unpacked it would be a gigabyte."""


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
async def test_a_body_that_unpacks_to_a_gigabyte_is_not_unpacked(
    server: RunningServer, tenant: str, coding: str
) -> None:
    ada = server.person("submitter", tenant=tenant)
    bomb = gzip.compress(bytes(1 << 20)) * 1024
    headers = {"Content-Encoding": coding, "Content-Type": "application/json"}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    answer = await ada.post("/v1/jobs", content=bomb, headers=headers)
    assert "not unpacked" in problem(answer, 400)["detail"]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < FEW
    assert (await ada.post("/v1/jobs", json={"specification": TRUE, "jobs": [{}]})).status_code == 201


def _refused_after(server: RunningServer, token: str) -> float:
    began = time.perf_counter()
    with pytest.raises(BadToken):
        server.services.components.identity.verify(token)
    return time.perf_counter() - began


async def test_the_time_of_a_refusal_does_not_tell_how_much_of_a_token_is_right(
    server: RunningServer, tenant: str
) -> None:
    """A signature that is wrong from its first character and one that is wrong at its end, one after the other two thousand times."""
    token = server.domain.token("viewer", tenant=tenant)
    head, _, signature = token.rpartition(".")
    other = {"A": "B"}
    early = f"{head}.{other.get(signature[0], 'A')}{signature[1:]}"
    late = f"{head}.{signature[:-4]}{other.get(signature[-4], 'A')}{signature[-3:]}"
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(2000):
        for kept, wrong in zip(times, (early, late), strict=True):
            kept.append(_refused_after(server, wrong))
    ratio = median(times[1]) / median(times[0])
    assert 0.95 < ratio < 1.05, ratio
