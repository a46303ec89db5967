"""Access control of the page: a check of each request, and security headers of each response.

The page reads with the user's own rights, so neither other users of this machine (token), nor other pages in the same
browser (Fetch metadata), nor names that are pointed at 127.0.0.1 later (Host) may use it.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.typedefs import Middleware

log = logging.getLogger("rlscaler.ui")

LOOPBACK = "127.0.0.1"
HOSTS = (LOOPBACK, "localhost", "[::1]")

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
"""Headers of every answer. No script or style of a page itself runs: all of them are files of this package."""

TOKEN = "token"
"""Parameter of the printed address. A cookie takes its place at once, so that no address that is shared holds it."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def door(token: str) -> Middleware:
    """Return the middleware that refuses strangers and sets the headers."""

    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            response = await _admit(request, handler, token)
        except web.HTTPException as refused:
            refused.headers.update(HEADERS)
            raise
        except Exception as error:
            log.exception("%s cannot be shown", request.path)
            response = web.Response(status=500, text=f"this cannot be shown ({type(error).__name__}: {error})")
        response.headers.update(HEADERS)
        return response

    return guarded


async def _admit(request: web.Request, handler: Handler, token: str) -> web.StreamResponse:
    port = request.transport.get_extra_info("sockname")[1] if request.transport is not None else 0
    if request.host not in {f"{host}:{port}" for host in HOSTS}:
        raise web.HTTPForbidden(text=f"{request.host[:100]} is not this page: open http://{LOOPBACK}:{port}/")
    # A link in another page may lead here; its scripts, images and frames may not.
    followed = request.headers.get("Sec-Fetch-Dest") == "document"
    if request.headers.get("Sec-Fetch-Site") in ("cross-site", "same-site") and not followed:
        raise web.HTTPForbidden(text="another page may not read this one")
    cookie = f"rlscaler-ui-{port}"
    if (brought := request.query.get(TOKEN)) is not None:
        moved = web.HTTPFound(request.rel_url.without_query_params(TOKEN))
        if hmac.compare_digest(brought.encode(), token.encode()):
            moved.set_cookie(cookie, token, httponly=True, samesite="Lax", path="/")
        raise moved
    if not hmac.compare_digest(request.cookies.get(cookie, "").encode(), token.encode()):
        raise web.HTTPUnauthorized(text="open the address that `rlscaler ui` has printed: it holds the token")
    return await handler(request)
