"""Answers a server's request for the log of a running payload, in pieces, followed to its end if requested."""

from __future__ import annotations

import codecs
import logging
import threading
from typing import TYPE_CHECKING, Any

from forestay_pilot.link.server_link import LinkError, RefusedError, ServerLink, ServerRing
from forestay_pilot.process.regular_file import open_regular

if TYPE_CHECKING:
    from forestay_pilot.link.held_claims import ClaimInHand, HeldClaims
    from forestay_pilot.link.identity import PilotIdentity

log = logging.getLogger("forestay_pilot")

_PIECE = 256 * 1024
_LOOK_EVERY = 0.5
_MOST_AT_ONCE = 8


class LogOrders:
    """Sends logs, each order in a thread of its own, a bounded number at once."""

    def __init__(self, ring: ServerRing, identity: PilotIdentity, held: HeldClaims) -> None:
        self._ring = ring
        self._identity = identity
        self._held = held
        self._places = threading.BoundedSemaphore(_MOST_AT_ONCE)

    def obey(self, order: dict[str, Any]) -> None:
        """Begin to answer an order, unless too many are being answered."""
        claim = str(order.get("claim"))
        if not self._places.acquire(blocking=False):
            log.warning("too many logs are requested at once; claim %s is skipped", claim[:8])
            return
        threading.Thread(target=self._answer, args=(claim, bool(order.get("follow"))), name="log", daemon=True).start()

    def _answer(self, claim: str, follow: bool) -> None:  # noqa: FBT001
        try:
            self._send_all(claim, self._held.get(claim), follow=follow)
        except (LinkError, OSError) as error:
            log.info("the log of claim %s was not sent completely: %s", claim[:8], error)
        except Exception:
            log.exception("the log of claim %s could not be sent", claim[:8])
        finally:
            self._places.release()

    def _send_all(self, claim: str, held: ClaimInHand | None, *, follow: bool) -> None:
        link = ServerLink(self._ring)
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        source = None
        offset = 0
        try:
            while True:
                # Looked at before reading, so that what was written last is not missed.
                over = held is None or not follow or held.finished.wait(_LOOK_EVERY if offset else 0)
                if source is None and held is not None and held.log_path:
                    try:
                        source = open(open_regular(held.log_path), "rb")  # noqa: SIM115 - closed below, read for long
                    except FileNotFoundError:
                        if not over:
                            held.finished.wait(_LOOK_EVERY)
                while True:
                    raw = source.read(_PIECE) if source else b""
                    if raw:
                        self._post(link, claim, offset, decoder.decode(raw), last=False)
                        offset += len(raw)
                    if len(raw) < _PIECE:
                        break
                if over:
                    self._post(link, claim, offset, decoder.decode(b"", final=True), last=True)
                    return
        finally:
            link.close()
            if source is not None:
                source.close()

    def _post(self, link: ServerLink, claim: str, offset: int, text: str, *, last: bool) -> None:
        body = {"claim": claim, "offset": offset, "text": text, "last": last}
        for patience in (0.5, 2.0, 0.0):
            try:
                self._identity.call(link, "POST", "/log", body, timeout=15.0)
            except RefusedError:
                raise
            except LinkError:
                if not patience:
                    raise
                threading.Event().wait(patience)
            else:
                return
