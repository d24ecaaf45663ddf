"""The link that logs a browser in, and one plain page to look at. A browser's session can look, and nothing else."""

from __future__ import annotations

from html import escape
from typing import Annotated

from fastapi import APIRouter, Query, Response

from holdfast.apps.server.answers import Out, Time, errors
from holdfast.apps.server.desk import Desk, TheDesk, Viewer, cookie_of
from holdfast.apps.server.job_routes import json_answer
from holdfast.apps.server.problems import Problem
from holdfast.domain.jobs.job_document import State
from holdfast.formats.job_public import time_text
from holdfast.ports.errors import PortError
from holdfast.ports.flow_engine import CaseQuery
from holdfast.ports.identity import BadToken, Principal
from holdfast.ports.job_store import JobQuery
from holdfast.services.open_sessions import SESSION_SECONDS

router = APIRouter(tags=["watch"])
SHOWN = 20
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
}
STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem;color:#1c2430;background:#fff}"
    "table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.25rem .75rem .25rem 0;border-bottom:1px solid #dde1e7}"
    "code{font:14px ui-monospace,monospace}"
    "@media(prefers-color-scheme:dark){body{color:#e6e9ee;background:#14181f}th,td{border-color:#323a46}}"
)


class LinkOut(Out):
    url: str
    expires: Time


@router.post("/v1/logins", status_code=201, response_model=LinkOut, responses=errors())
async def make_link(desk: TheDesk, who: Viewer) -> Response:
    """A link that logs a browser in once, as who asks, to look; good for ten minutes."""
    invited = await desk.services.sessions.invite(subject=who.subject, tenant=who.tenant)
    url = f"{desk.services.parts.settings.public_url}/login?once={invited.once}"
    return json_answer({"url": url, "expires": time_text(invited.expires)}, 201)


@router.get("/login", include_in_schema=False, responses=errors())
async def log_in(desk: TheDesk, once: Annotated[str, Query(max_length=200)] = "") -> Response:
    """Trade a link for a session."""
    try:
        token, who = await desk.services.sessions.redeem(once)
    except BadToken as error:
        raise Problem(401, str(error)) from error
    # A page that leads on, not a redirect: the browser then sends the strict cookie wherever the link was found.
    answer = _page(
        "Holdfast", f"<p>You are logged in as {escape(who.subject)}. <a href='/'>Go on</a>.</p>", refresh="0; url=/"
    )
    answer.set_cookie(
        cookie_of(desk),
        token,
        max_age=SESSION_SECONDS,
        path="/",
        httponly=True,
        samesite="strict",
        secure=desk.services.parts.settings.public_url.startswith("https:"),
    )
    return answer


@router.get("/", include_in_schema=False, responses=errors())
async def page(desk: TheDesk, who: Viewer) -> Response:
    """How the tenant's jobs and cases stand."""
    counts = await desk.services.parts.store.count(JobQuery(tenant=who.tenant), by="state")
    rows = [[f"{counts.get(state.value, 0):,}", state.value.replace("_", " ")] for state in State]
    parts = [
        f"<p>{escape(who.subject)}, tenant {escape(who.tenant)}. This page renews itself.</p>",
        "<h2>Jobs</h2>",
        _table(["Jobs", "State"], rows),
        "<h2>Cases</h2>",
        await _cases(desk, who),
        "<p>In a terminal: <code>holdfast cases</code>, <code>holdfast queue</code>, <code>holdfast run FLOW</code></p>",
    ]
    return _page("Holdfast", "".join(parts), refresh="5")


async def _cases(desk: Desk, who: Principal) -> str:
    engine = desk.services.parts.engine
    if engine is None:
        return "<p>Cases are not run here: this server was started without Temporal.</p>"
    try:
        found = (await engine.find(CaseQuery(who.tenant), limit=SHOWN)).cases
    except PortError as error:
        return f"<p>Temporal does not answer: {escape(str(error))}</p>"
    if not found:
        return "<p>None yet.</p>"
    rows = [[one.case[:8], one.name, one.state, one.owner, time_text(one.started) or ""] for one in found]
    return _table(["Case", "Flow", "State", "Owner", "Started"], rows)


def _table(heads: list[str], rows: list[list[str]]) -> str:
    head = "".join(f"<th scope='col'>{escape(one)}</th>" for one in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(one)}</td>" for one in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _page(title: str, body: str, *, refresh: str) -> Response:
    text = (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{escape(title)}</title>"
        f"<meta name='viewport' content='width=device-width'><meta http-equiv='refresh' content='{escape(refresh)}'>"
        f"<style>{STYLE}</style></head><body><main><h1>{escape(title)}</h1>{body}</main></body></html>"
    )
    return Response(text, headers=HEADERS, media_type="text/html; charset=utf-8")
