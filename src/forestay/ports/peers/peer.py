"""Another domain, called over the Workflow Execution Service; see `domain.peers.peer` for timestamps and leases.

The law:

* *Connection.* `hello` gives what the peer offers now, with a stamp by the peer's clock.
* *Sending.* A sub-flow is sent under a key that names it and the number of the try to place it. The same key to the same peer is the same run, however often and
  however late it is sent: so a repeat after a lost answer is harmless. A request carries a stamp; a peer starts nothing for a stamp whose lease has lapsed, unless it had started
  that very run before.
* *Holding.* `renew` tells a stamp back and asks after many runs at once: one call a tenant and peer, not one a run. While it hears a stamp in time, the peer runs what it was
  sent. When no stamp holds the lease any more, it stops everything that it runs for that domain: cancelled jobs commit nothing.
* *Moving.* A sub-flow goes elsewhere only when the newest stamp that reached us from the peer is older than the lease and the peer's time to stop. No request that is still under
  way can hold a lease longer than that, so nothing runs in two domains unseen. An end that comes from a domain from which the sub-flow was moved is written down and does not count.
* *Who asks.* The token is made here for one call, signed by this domain's own key, and names our tenant and the person for whom it is; the peer's administrator decides which of the
  peer's tenants that is. A person's own token never leaves its domain.
* `Transient`: no answer; the call may have taken place. `Permanent`: the peer refused, and nothing was started. `Conflict`: the stamp is too old, or the
  key was used for something else; nothing was started by this call. `NotFound`: the peer does not know it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from forestay.domain.peers.peer import Peer


class PeerInfo(NamedTuple):
    """A peer's information about itself."""

    stamp: int
    offer: Mapping[str, Any]


class PeerRun(NamedTuple):
    """A run there."""

    state: str
    """As the Workflow Execution Service calls it."""
    outputs: Mapping[str, Any]
    reason: str
    stopped: bool = False
    """It was not cancelled by anybody: the lease had lapsed."""


class Renewed(NamedTuple):
    """The answer to a renewal; a run that is not there is left out."""

    stamp: int
    runs: Mapping[str, PeerRun]


class Caller(NamedTuple):
    """On whose behalf a call is made."""

    tenant: str
    subject: str


class PeerCalls(Protocol):
    """The port."""

    async def hello(self, peer: Peer, who: Caller) -> PeerInfo: ...

    async def send(
        self, peer: Peer, who: Caller, *, key: str, flow: str, params: Mapping[str, object], stamp: int
    ) -> str:
        """Send a flow, in YAML; the id of its run there."""
        ...

    async def renew(self, peer: Peer, who: Caller, runs: Sequence[str], *, stamp: int) -> Renewed:
        """Hold the lease and ask after runs, at most 1,000."""
        ...

    async def cancel(self, peer: Peer, who: Caller, run: str) -> None:
        """Have a run end; one that has ended stays as it is."""
        ...

    async def goodbye(self, peer: Peer, who: Caller) -> None:
        """Say that we are going: nothing more will come."""
        ...


class PeerTokens(Protocol):
    """Signs for this domain, and recognises others by their keys. Keys are JSON web keys as text."""

    @property
    def public(self) -> str:
        """This domain's public key, for the administrators of its peers."""
        ...

    def name(self, key: str) -> str:
        """The name that a public key has everywhere: its thumbprint. `Permanent` if it is no key."""
        ...

    def make(self, key: str, who: Caller) -> str:
        """A token for one call or a few, good for a minute and only at the domain that has this key."""
        ...

    def issuer(self, token: str) -> str:
        """The name of the key that a token says it is signed by, not proven; empty: this is no token of a peer."""
        ...

    def verify(self, token: str, key: str) -> Caller:
        """For whom a peer asks; `BadToken` (of `ports.operations.identity`) if it is not signed by this key, for us and for now."""
        ...
