"""Checks the installation as a client sees it: the server, the token, pilots, sites and runs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from forestay.adapters.temporal.dev_server import HOW_TO_GET_TEMPORAL
from forestay.apps.config.settings import Settings
from forestay.apps.doctor.check_result import GOOD, MISSING, NOTE, CheckResult
from forestay.client import BadSettings, ClientError, ForestayClient, NotAllowed, Patience, find_settings
from forestay.client.api import site_calls
from forestay.client.transport.errors import ApiError

SKEW = 5.0


def server(_: Settings) -> Iterator[CheckResult]:
    """Check the server that the command line would use."""
    start = "On a laptop: forestay dev. Elsewhere ask your operator, then set FORESTAY_SERVER."
    try:
        known = find_settings()
    except BadSettings as error:
        yield CheckResult("server", NOTE, str(error), start)
        return
    with ForestayClient(known.server.value, known.token.value, patience=Patience(seconds=0)) as client:
        try:
            status = client.status()
        except NotAllowed as error:
            yield CheckResult(
                "token",
                MISSING,
                f"{error} ({known.token.source})",
                "Ask your operator for a new one, or create one: forestay token.",
            )
            return
        except ClientError as error:
            yield CheckResult("server", NOTE, f"{known.server.value} ({known.server.source}): {error}", start)
            return
        yield CheckResult(
            "server", GOOD, f"{known.server.value}, version {status.get('version')}, store {status.get('store')}"
        )
        you = status.get("you") or {}
        yield CheckResult("token", GOOD, f"{you.get('subject')} of tenant {you.get('tenant')} ({known.token.source})")
        ahead = client.now().timestamp() - time.time()
        if abs(ahead) > SKEW:
            way = "ahead of" if ahead > 0 else "behind"
            words = f"the server's clock is {abs(ahead):.0f} seconds {way} this machine's"
            yield CheckResult("clock", MISSING, words, "Synchronise both with NTP (chrony, systemd-timesyncd).")
        for check in (_sites, _pilots, _runs):
            try:
                yield from check(client)
            except (ApiError, ClientError) as error:
                yield CheckResult(check.__name__.strip("_"), MISSING, str(error), "See the server's log.")


def _pilots(client: ForestayClient) -> Iterator[CheckResult]:
    alive = sum(pilot.get("state") == "alive" for pilot in client.pilots())
    if alive:
        yield CheckResult("pilots", GOOD, f"{alive} alive")
    elif any(not site["overdue"] for site in client.send(site_calls.sites())):
        yield CheckResult("pilots", GOOD, "none now; a site agent submits them when jobs wait")
    else:
        yield CheckResult("pilots", MISSING, "none is alive, so no job runs", "Start one: forestay pilot --help")


def _sites(client: ForestayClient) -> Iterator[CheckResult]:
    for site in client.send(site_calls.sites()):
        name, trouble = f"site {site['site']}", site["said"]["trouble"]
        if site["overdue"]:
            remedy = f"Start it again on {site['host']}: forestay site --config FILE. If the site no longer exists, ignore this."
            yield CheckResult(name, NOTE, f"its agent on {site['host']} has been silent since {site['seen']}", remedy)
        elif trouble:
            yield CheckResult(name, MISSING, str(trouble), f"forestay site --check on {site['host']} shows details.")
        else:
            yield CheckResult(name, GOOD, f"its agent on {site['host']} is active")
        yield _users(name, site["said"])


def _users(name: str, said: Mapping[str, Any]) -> CheckResult:
    """As which Unix users the jobs of a site run."""
    if said.get("run_as") != "submitter":
        return CheckResult(name, GOOD, "all jobs run as one Unix user, the agent's")
    unmapped = said.get("unmapped") or []
    if not unmapped:
        return CheckResult(name, GOOD, "jobs run as the Unix users of those who submitted them")
    words = (
        f"jobs run as their submitters; without a Unix user there, and waiting: {', '.join(map(str, unmapped[:10]))}"
    )
    return CheckResult(name, NOTE, words, "Name their Unix users in the agent's settings (users.names).")


def _runs(client: ForestayClient) -> Iterator[CheckResult]:
    try:
        client.find_runs(limit=1)
    except (ApiError, ClientError) as error:
        yield CheckResult("runs", MISSING, str(error), HOW_TO_GET_TEMPORAL)
    else:
        yield CheckResult("runs", GOOD, "flows can be run")
