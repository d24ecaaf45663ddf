"""The pages: login links for browsers, the session, and the files of the pages, which are built into the package."""

from __future__ import annotations

import gzip
import secrets
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import Path, Query, Request, Response
from pydantic import Field

from forestay.apps.server.http.answers import NothingOut, Out, Time, errors
from forestay.apps.server.http.problems import HttpProblem
from forestay.apps.server.http.request_context import (
    Administrator,
    RequestContext,
    TheDesk,
    Viewer,
    context_of,
    cookie_of,
    json_answer,
    session_of,
    token_of,
)
from forestay.apps.server.http.router import Route, Router
from forestay.apps.server.http.schemas import Model, Reason, Word
from forestay.formats.jobs.job_public import time_text
from forestay.ports.operations.identity import IMPLIED, BadToken, Role
from forestay.services.operations.browser_sessions import SESSION_SECONDS, word_against_forgery

NONCE = "__NONCE__"
"""The placeholder in the built page for the nonce of each response."""
PAGES = (
    "/", "/inbox", "/errors/{fingerprint}", "/incidents/{incident}", "/rules", "/rules/{level}/{name}", "/playbooks", "/runs", "/runs/{run}", "/jobs",
    "/jobs/{job}", "/fleet", "/overview",
)  # fmt: skip
"""Addresses of pages. All are the same file: what is shown is decided in the browser, what may be shown by the routes that it asks."""
HEADERS = {
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
KINDS = {
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "woff2": "font/woff2",
    "json": "application/json",
}
STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;margin:3rem auto;max-width:40rem;padding:0 1rem;color:#1c2430;background:#fff}"
    "code{font:14px ui-monospace,monospace;background:#eef1f5;padding:.15rem .35rem;border-radius:.25rem}a{color:#1257a8}"
    "@media(prefers-color-scheme:dark){body{color:#e6e9ee;background:#14181f}code{background:#262d38}a{color:#8ec1ff}}"
)


def policy(nonce: str, *, script: bool) -> str:
    """The content security policy: a page may load its own files, and styles with the nonce of this response; nothing inline."""
    own = "script-src 'self'; connect-src 'self'; img-src 'self' data:; font-src 'self'; " if script else ""
    return (
        f"default-src 'none'; {own}style-src 'self' 'nonce-{nonce}'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"
    )


class PageRoute(Route):
    """A route whose login errors are a page for people, not a document for programs."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        inner = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await inner(request)
            except HttpProblem as problem:
                if problem.status_code != 401 or "text/html" not in request.headers.get("accept", ""):
                    raise
                return _stranger(request, str(problem.detail))

        return handle


api = Router(tags=["watch"])
router = Router(tags=["watch"], route_class=PageRoute)


class LinkIn(Model):
    look: bool = False
    """The browser may only read, whatever the requester may do."""


class LinkOut(Out):
    url: str
    expires: Time


class SessionOut(Out):
    subject: str
    tenant: str
    roles: list[str]
    """All that they may do, implied roles included."""
    expires: Time
    word: str | None
    """To be sent with every act; nothing: this is no browser's session."""


class EndedOut(Out):
    ended: bool


@api.post("/v1/logins", status_code=201, response_model=LinkOut, responses=errors(body=True))
async def make_link(context: TheDesk, who: Viewer, body: LinkIn | None = None) -> Response:
    """A link that logs a browser in once, as the requester, with their roles; valid for ten minutes."""
    roles = frozenset[Role]() if body is not None and body.look else who.roles
    invited = await context.services.sessions.invite(
        subject=who.subject, tenant=who.tenant, roles=roles, until=who.expires
    )
    url = f"{context.services.components.settings.public_url}/login?once={invited.once}"
    return json_answer({"url": url, "expires": time_text(invited.expires)}, 201)


@api.get("/v1/session", response_model=SessionOut, responses=errors())
async def read_session(request: Request, who: Viewer) -> Response:
    """The logged-in person, their roles, and the CSRF token that their page sends with every change."""
    roles = sorted({implied.value for role in who.roles for implied in IMPLIED[role]})
    token = session_of(request)
    word = word_against_forgery(token) if token else None
    body = {"subject": who.subject, "tenant": who.tenant, "roles": roles, "expires": time_text(who.expires * 1000)}
    return json_answer(body | {"word": word})


@api.delete("/v1/session", response_model=EndedOut, responses=errors())
async def end_session(context: TheDesk, request: Request, who: Viewer) -> Response:
    """Log out: the token of the request is no longer valid at any server, and a browser's cookie is removed."""
    await context.services.token_revocations.end(token_of(request), who)
    answer = json_answer({"ended": True})
    answer.delete_cookie(cookie_of(context), path="/", httponly=True, samesite="strict")
    return answer


class RevokedTokensIn(Model):
    reason: Annotated[Reason, Field(min_length=1)]


@api.post("/v1/people/{subject}/revoke", response_model=NothingOut, responses=errors(body=True))
async def revoke_tokens(context: TheDesk, who: Administrator, subject: Word, body: RevokedTokensIn) -> Response:
    """Revoke all tokens and sessions issued to a person or program of the tenant until now; later ones are valid."""
    await context.note(who, "revoke-tokens", subject, why=body.reason)
    revocations = context.services.token_revocations
    await revocations.revoke(tenant=who.tenant, subject=subject, by=who.subject, reason=body.reason)
    return json_answer({})


@router.get("/login", include_in_schema=False, responses=errors())
async def log_in(context: TheDesk, request: Request, once: Annotated[str, Query(max_length=200)] = "") -> Response:
    """Trade a link for a session."""
    try:
        token, who = await context.services.sessions.redeem(once)
    except BadToken as error:
        raise HttpProblem(401, str(error)) from error
    return logged_in(context, token, who.subject, on="/")


def logged_in(context: RequestContext, token: str, subject: str, *, on: str) -> Response:
    """The response that begins a session: a page that continues, not a redirect, so that the browser sends the strict cookie wherever it came from."""
    leads = escape(on, quote=True)
    answer = plain_page(
        "Forestay", f"<p>You are logged in as {escape(subject)}. <a href='{leads}'>Continue</a>.</p>", on=on
    )
    answer.set_cookie(
        cookie_of(context),
        token,
        max_age=SESSION_SECONDS,
        path="/",
        httponly=True,
        samesite="strict",
        secure=context.services.components.settings.public_url.startswith("https:"),
    )
    return answer


@dataclass(frozen=True, slots=True)
class _PageFile:
    kind: str
    whole: bytes
    packed: bytes


def _folder() -> Traversable:
    return files("forestay.apps.server.pages") / "static"


@cache
def _file(name: str) -> _PageFile | None:
    """A file of the pages, read and compressed once; None: there is none, or the requested name is not a plain one."""
    if "/" in name or name.startswith(".") or name.rpartition(".")[2] not in KINDS:
        return None
    path = _folder() / "assets" / name
    if not path.is_file():
        return None
    whole = path.read_bytes()
    return _PageFile(KINDS[name.rpartition(".")[2]], whole, gzip.compress(whole, 9, mtime=0))


def _shell() -> str | None:
    """The single HTML file of all pages; None: they were not built."""
    path = _folder() / "index.html"
    return path.read_text(encoding="utf-8") if path.is_file() else None


async def page(_who: Viewer) -> Response:
    """A page of the browser's."""
    text = _shell()
    if text is None:
        body = "<p>The web pages are not built into this installation. Build them in the source folder with <code>just pages</code>, or install the wheel, which contains them.</p>"
        return plain_page("Forestay", body)
    nonce = secrets.token_urlsafe(16)
    headers = HEADERS | {"Content-Security-Policy": policy(nonce, script=True)}
    return Response(text.replace(NONCE, nonce), headers=headers, media_type="text/html; charset=utf-8")


for _address in PAGES:
    router.add_api_route(_address, page, include_in_schema=False, responses=errors())


@router.get("/assets/{name}", include_in_schema=False, responses=errors(404))
async def asset(request: Request, _who: Viewer, name: Annotated[str, Path(max_length=200)]) -> Response:
    """A file of the pages. Its name changes with its content, so it may be kept for ever."""
    file = _file(name)
    if file is None:
        raise HttpProblem(404, "there is no such file")
    headers = HEADERS | {"Cache-Control": "private, max-age=31536000, immutable", "Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(file.packed, headers=headers | {"Content-Encoding": "gzip"}, media_type=file.kind)
    return Response(file.whole, headers=headers, media_type=file.kind)


def _stranger(request: Request, detail: str) -> Response:
    # A logged-in person who came by a link on another site has sent no cookie: from this page they do.
    here = escape(request.url.path, quote=True) if request.url.path != "/login" else "/"
    body = (
        f"<p>{escape(detail)}</p>{_by_provider(request, here)}"
        "<p>In a terminal, <code>forestay link</code> prints a log-in link for this browser. "
        f"If you are already logged in, <a href='{here}'>open the page</a>.</p>"
    )
    answer = plain_page("Forestay: log in", body)
    answer.status_code = 401
    answer.headers["WWW-Authenticate"] = "Bearer"
    return answer


def _by_provider(request: Request, here: str) -> str:
    provider = context_of(request).services.provider
    if provider is None or not provider.terms.client:
        return ""
    return f"<p><a href='/login/provider?on={quote(here)}'>Log in</a> with {escape(provider.terms.issuer)}.</p>"


def plain_page(title: str, body: str, *, on: str = "") -> Response:
    nonce = secrets.token_urlsafe(16)
    leads = f"<meta http-equiv='refresh' content='0; url={escape(on)}'>" if on else ""
    text = (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{escape(title)}</title>"
        f"<meta name='viewport' content='width=device-width'>{leads}"
        f"<style nonce='{nonce}'>{STYLE}</style></head><body><main><h1>{escape(title)}</h1>{body}</main></body></html>"
    )
    headers = HEADERS | {"Content-Security-Policy": policy(nonce, script=False)}
    return Response(text, headers=headers, media_type="text/html; charset=utf-8")
