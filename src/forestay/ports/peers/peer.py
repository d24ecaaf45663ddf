"""Another domain, called over the Workflow Execution Service; see `domain.peers.peer` for timestamps and leases.

The contract:

* *Connection.* `hello` returns what the peer offers now, with a stamp by the peer's clock.
* *Sending.* A sub-flow is sent under a key that names it and the number of the attempt to place it. The same key to the same peer is the same run, however often and
  however late it is sent: so a repeat after a lost response is harmless. A request carries a stamp; a peer starts nothing for a stamp whose lease has lapsed, unless it had
  started that same run before.
* *Holding.* `renew` returns a stamp to the peer and asks for the states of many runs at once: one call for each tenant and peer, not for each run. As long as it gets a stamp in
  time, the peer runs what it was sent. When no stamp holds the lease any more, it stops everything that it runs for that domain: cancelled jobs commit nothing.
* *Moving.* A sub-flow is moved elsewhere only when the newest stamp that reached us from the peer is older than the lease and the peer's time to stop. No request still in
  flight can hold a lease longer than that, so nothing runs in two domains unnoticed. A result from a domain from which the sub-flow was moved is recorded and does not count.
* *Caller.* The token is made here for one call, signed by this domain's own key, and names our tenant and the person on whose behalf the call is made; the peer's administrator
  decides which of the peer's tenants that is. A person's own token never leaves its domain.
* `Transient`: no answer; the call may have taken place. `Permanent`: the peer refused, and nothing was started. `Conflict`: the stamp is too old, or the
  key was used for something else; this call started nothing. `NotFound`: the peer does not know the run.
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
    """A run at the peer."""

    state: str
    """A state of the Workflow Execution Service."""
    outputs: Mapping[str, Any]
    reason: str
    stopped: bool = False
    """Nobody cancelled it: the lease had lapsed."""


class Renewed(NamedTuple):
    """The answer to a renewal; runs that the peer does not know are left out."""

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
        """Send a flow, in YAML, and return the id of its run at the peer."""
        ...

    async def renew(self, peer: Peer, who: Caller, runs: Sequence[str], *, stamp: int) -> Renewed:
        """Renew the lease and get the states of at most 1,000 runs."""
        ...

    async def cancel(self, peer: Peer, who: Caller, run: str) -> None:
        """Cancel a run; one that has ended does not change."""
        ...

    async def goodbye(self, peer: Peer, who: Caller) -> None:
        """Announce that this domain leaves and will send nothing more."""
        ...


class PeerTokens(Protocol):
    """Signs tokens of this domain, and verifies those of others by their keys. Keys are JSON web keys as text."""

    @property
    def public(self) -> str:
        """This domain's public key, for the administrators of its peers."""
        ...

    def name(self, key: str) -> str:
        """The name of a public key everywhere: its thumbprint. `Permanent` if the text is not a key."""
        ...

    def make(self, key: str, who: Caller) -> str:
        """A token for one or a few calls, valid for a minute and only at the domain that has this key."""
        ...

    def issuer(self, token: str) -> str:
        """The name of the key that a token claims as its signer, unverified; empty: this is not a token of a peer."""
        ...

    def verify(self, token: str, key: str) -> Caller:
        """On whose behalf a peer calls; `BadToken` (of `ports.operations.identity`) if the token is not signed by this key, for us and valid now."""
        ...
