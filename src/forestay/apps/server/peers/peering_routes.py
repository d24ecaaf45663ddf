"""Routes by which peers hold their lease, query many runs at once, and sign off."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any

from fastapi import Response
from pydantic import Field

from forestay.apps.server.flows.flow_routes import engine_of
from forestay.apps.server.http.answers import NothingOut, Out, errors
from forestay.apps.server.http.problems import HttpProblem
from forestay.apps.server.http.request_context import RequestContext, Submitter, TheDesk, json_answer
from forestay.apps.server.http.router import Router
from forestay.apps.server.http.schemas import Id, Model
from forestay.apps.server.insertion.wes_routes import runs_of
from forestay.domain.peers.peer import Peer
from forestay.formats.ga4gh.wes_run import ENDED, WesRunState
from forestay.ports.errors import NotFound
from forestay.ports.operations.identity import Principal
from forestay.services.peers.peer_leases import LAPSED, PeerLeases

router = Router(prefix="/v1/peering", tags=["peers"])
MOST = 1000


class RenewIn(Model):
    stamp: int = Field(ge=0, le=2**53)
    """The newest stamp that this domain gave to the peer."""
    runs: Annotated[list[Id], Field(max_length=MOST)]


class PeerRunOut(Out):
    state: str
    """As the Workflow Execution Service calls it."""
    outputs: dict[str, Any]
    reason: str
    stopped: bool
    """It ended, or ends, because the lease had lapsed."""


class RenewedOut(Out):
    stamp: int
    runs: dict[str, PeerRunOut]
    """The requested runs that exist."""


def sender(context: RequestContext, who: Principal) -> tuple[Peer, PeerLeases]:
    """The peer that asks."""
    engine_of(context)
    peer = context.services.components.peers.sender(who)
    leases = context.services.leases
    if peer is None or leases is None:
        raise HttpProblem(403, "only peers of this domain may use this")
    return peer, leases


@router.post("/renew", response_model=RenewedOut, responses=errors(409, 501, body=True))
async def renew(context: TheDesk, who: Submitter, body: RenewIn) -> Response:
    """Renew the lease with a stamp, and return the states of runs."""
    peer, leases = sender(context, who)
    stamp = context.services.components.clock.now()
    await leases.hold(peer, body.stamp)
    running = await leases.open(peer.name, who.tenant) if body.runs else {}
    runs = {}
    for run in body.runs:
        if run in running:
            runs[run] = {"state": WesRunState.RUNNING.value, "outputs": {}, "reason": "", "stopped": False}
        elif (status := await _status(context, who, run)) is not None:
            runs[run] = status
    return json_answer({"stamp": stamp, "runs": runs})


async def _status(context: RequestContext, who: Principal, run: str) -> dict[str, Any] | None:
    """A run that has ended, or has just begun; None: this peer has no such run."""
    runs = runs_of(context)
    known = await runs.get(who.tenant, run)
    if known is None or known.owner != who.subject:
        return None
    state = known.status.state
    status: dict[str, Any] = {"state": state.value, "outputs": {}, "reason": "", "stopped": False}
    if state in (WesRunState.CANCELED, WesRunState.CANCELING):
        status["stopped"] = await runs.cancelled_by(run) == LAPSED
    if state in ENDED:
        with suppress(NotFound):
            left = await engine_of(context).state(run)
            outputs = await context.services.run_outputs.shown(who.tenant, run, left["outputs"])
            status |= {"outputs": dict(outputs), "reason": str(left["reason"] or "")}
    return status


@router.post("/goodbye", response_model=NothingOut, responses=errors(501, body=True))
async def goodbye(context: TheDesk, who: Submitter) -> Response:
    """The peer disconnects: what it sent is stopped."""
    peer, leases = sender(context, who)
    await leases.end(peer.name)
    return json_answer({})
