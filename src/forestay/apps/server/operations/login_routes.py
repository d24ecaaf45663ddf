"""Login through an identity provider: to its page, and back with a code (authorization code with PKCE).

The state of a login is kept, encrypted, in the browser and not by us: an unauthenticated client must not be able to cause writes to the store.
"""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import Query, Request, Response
from starlette.responses import RedirectResponse

from forestay.apps.server.http.answers import errors
from forestay.apps.server.http.problems import HttpProblem
from forestay.apps.server.http.request_context import RequestContext, TheDesk, cookie_of
from forestay.apps.server.http.router import Router
from forestay.apps.server.pages.page_routes import HEADERS, PageRoute, logged_in
from forestay.ports.operations.identity import BadToken
from forestay.services.operations.browser_sessions import PEOPLE
from forestay.services.operations.oidc_provider import LOGIN_SECONDS, OidcProvider

router = Router(tags=["watch"], route_class=PageRoute)
BACK = "/login/back"
_HERE = re.compile(r"/([A-Za-z0-9._~:%-][A-Za-z0-9._~:%/-]*)?")
"""A permitted redirect target: a page of ours. Two slashes at its beginning would name another host."""


def _provider(context: RequestContext) -> OidcProvider:
    provider = context.services.provider
    if provider is None or not provider.terms.client:
        raise HttpProblem(404, "no identity provider is configured; `forestay link` creates a log-in link")
    return provider


def _kept(context: RequestContext) -> str:
    return f"{cookie_of(context)}-login"


def _back(context: RequestContext) -> str:
    return context.services.components.settings.public_url.rstrip("/") + BACK


@router.get("/login/provider", include_in_schema=False, responses=errors(403, 404))
async def begin(context: TheDesk, on: Annotated[str, Query(max_length=300)] = "/") -> Response:
    """Lead the browser to the provider's page."""
    begun = await _provider(context).begin(_back(context), on=on if _HERE.fullmatch(on) else "/")
    answer = RedirectResponse(begun.url, 303, headers=HEADERS)
    answer.set_cookie(
        _kept(context),
        begun.kept,
        max_age=LOGIN_SECONDS,
        path=BACK,
        httponly=True,
        samesite="lax",  # the browser comes back from another site
        secure=context.services.components.settings.public_url.startswith("https:"),
    )
    return answer


@router.get(BACK, include_in_schema=False, responses=errors(403, 404))
async def finish(
    context: TheDesk,
    request: Request,
    state: Annotated[str, Query(max_length=200)] = "",
    code: Annotated[str, Query(max_length=2000)] = "",
    iss: Annotated[str, Query(max_length=500)] = "",
    error: Annotated[str, Query(max_length=200)] = "",
) -> Response:
    """Begin the session of whom the provider knows."""
    provider = _provider(context)
    kept = request.cookies.get(_kept(context), "")
    if error or not code or not kept:
        raise HttpProblem(
            401, f"the provider reports: {error}" if error else "no log-in was started here, or it has expired"
        )
    try:
        who, on = await provider.finish(kept, state=state, code=code, issuer=iss, back=_back(context))
        if not who.roles & PEOPLE:
            raise HttpProblem(403, f"{who.subject} has no role in tenant {who.tenant}; ask your operator")
        token, _ = context.services.sessions.admit(subject=who.subject, tenant=who.tenant, roles=who.roles, until=None)
    except BadToken as bad:
        raise HttpProblem(401, str(bad)) from bad
    answer = logged_in(context, token, who.subject, on=on)
    answer.delete_cookie(_kept(context), path=BACK, httponly=True, samesite="lax")
    return answer
