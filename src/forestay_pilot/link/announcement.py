"""Reports to the servers that this machine is unfit to run jobs, before the pilot ends."""

from __future__ import annotations

import logging
import secrets
import time
from typing import TYPE_CHECKING, Any

from forestay_pilot.link.server_link import LinkError, RefusedError, ServerLink, ServerRing

if TYPE_CHECKING:
    from forestay_pilot.link.environment import FailedCheck

log = logging.getLogger("forestay_pilot")

_TRIES = 4
_CALL_SECONDS = 6.0


def announce(ring: ServerRing, token: str, facts: dict[str, Any], findings: list[FailedCheck]) -> bool:
    """Report the failed checks; returns whether a server has received the report."""
    body = {
        **facts,
        "nonce": secrets.token_hex(16),  # the same in every repeat
        "findings": [{"check": finding.check, "words": finding.words} for finding in findings],
    }
    link = ServerLink(ring)
    try:
        for place in range(_TRIES):
            try:
                link.call("POST", "/v1/pilots/failed-checks", body, token=token, timeout=_CALL_SECONDS)
            except RefusedError as refusal:
                log.warning("the servers refused the report: %s", refusal)
                return False
            except LinkError as error:
                log.info("no server accepted the report: %s", error)
                time.sleep(0.2 * 2**place)
            else:
                return True
    finally:
        link.close()
    return False
