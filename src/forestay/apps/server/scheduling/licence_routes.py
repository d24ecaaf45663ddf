"""Routes for licences: how many seats there are, and who holds them."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Response
from pydantic import Field

from forestay.apps.server.http.answers import NothingOut, Out, Time, errors
from forestay.apps.server.http.problems import HttpProblem
from forestay.apps.server.http.request_context import Administrator, RequestContext, TheDesk, Viewer, json_answer
from forestay.apps.server.http.router import Router
from forestay.apps.server.http.schemas import Model
from forestay.domain.jobs.requirements import MAX_SEATS
from forestay.domain.scheduling.licence import Licence
from forestay.formats.jobs.job_json import Json
from forestay.formats.jobs.job_public import time_text
from forestay.ports.operations.identity import Principal

router = Router(prefix="/v1/licences", tags=["licences"])
LicenceName = Annotated[
    str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]*$", max_length=64, description="As jobs name it.")
]


class HolderOut(Out):
    job: str
    seats: int
    since: Time | None


class LicenceOut(Out):
    name: str
    seats: int
    used: int
    free: int
    holders: list[HolderOut]


class LicencesOut(Out):
    licences: list[LicenceOut]


class SeatsIn(Model):
    seats: int = Field(ge=0, le=MAX_SEATS)


@router.get("", response_model=LicencesOut, responses=errors())
async def licences(context: TheDesk, who: Viewer) -> Response:
    """The licences of the domain, with the jobs of the caller's tenant that have seats."""
    known = await context.services.seats.all()
    jobs = sorted({holder.job for licence in known for holder in licence.holders.values()})
    stored = await context.services.components.store.get(jobs[:1000]) if jobs else {}
    own = {name for name, job in stored.items() if job.document.tenant == who.tenant}
    return json_answer({"licences": [_shown(licence, own) for licence in known]})


@router.put("/{licence}", response_model=LicenceOut, responses=errors(body=True))
async def put(context: TheDesk, who: Administrator, licence: LicenceName, body: SeatsIn) -> Response:
    """Set how many seats a licence has. Running jobs keep theirs."""
    _of_the_domain(context, who)
    await context.note(who, "set licence", licence, why=f"{body.seats} seats")
    return json_answer(_shown(await context.services.seats.put(licence, body.seats), set()))


@router.delete("/{licence}", response_model=NothingOut, responses=errors(404))
async def remove(context: TheDesk, who: Administrator, licence: LicenceName) -> Response:
    """Remove a licence of which no seat is in use."""
    _of_the_domain(context, who)
    await context.note(who, "remove licence", licence)
    if not await context.services.seats.remove(licence):
        raise HttpProblem(404, f"there is no licence {licence}")
    return json_answer({})


def _of_the_domain(context: RequestContext, who: Principal) -> None:
    """Only administrators of the administrative tenant may change licences, which all tenants share."""
    admin = context.services.components.settings.admin_tenant
    if who.tenant != admin:
        raise HttpProblem(403, f"only an administrator of tenant {admin} may change licences")


def _shown(licence: Licence, own: set[str]) -> Json:
    return {
        "name": licence.name,
        "seats": licence.seats,
        "used": licence.used,
        "free": licence.free,
        "holders": [
            {"job": holder.job, "seats": holder.seats, "since": time_text(holder.at)}
            for holder in licence.holders.values()
            if holder.job in own
        ],
    }
