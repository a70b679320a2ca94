"""What stands between the network and every page: only looking, only from here, only what is small enough.

Refused before anything else happens: methods other than GET and HEAD, bodies, long addresses, a ``Host`` that is none
of ours (a name that somebody else's DNS points here), requests that another site's page makes, and whoever lacks the
token where one is asked for. Every answer, refusals too, carries the headers that keep a browser from doing more than
show it.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from airfl.web.limits import PATH_BYTES, QUERY_BYTES
from airfl.web.pages import page

HEADERS = {
    "content-security-policy": (
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
    ),
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
LOOPBACK = ("127.0.0.1", "localhost", "::1")
#: What a browser says of a request that another site's page caused.
FOREIGN = ("cross-site", "same-site")


@dataclass(frozen=True)
class Door:
    """Who may come in.

    Attributes:
        hosts: names that ``Host`` may have, without a port.
        port: that it may name; None: any.
        token: that opens; None: nobody is asked for one.
    """

    hosts: tuple[str, ...] = LOOPBACK
    port: int | None = None
    token: str | None = field(default=None, repr=False)
    _salt: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

    @property
    def cookie(self) -> str:
        """The cookie's name: browsers share cookies among the ports of a host."""
        return f"airfl-{self.port or 0}"

    @property
    def pass_(self) -> str:
        """What the cookie holds: not the token itself, and another one after every start."""
        return hmac.new(self._salt, (self.token or "").encode(), hashlib.sha256).hexdigest()

    def knows(self, host: str, server: Sequence[object] | None = None) -> bool:
        """Whether a ``Host`` is one of ours.

        Args:
            server: the address that the connection came to: nobody's DNS can make a browser write that.
        """
        try:
            found = urlsplit(f"//{host}")
            name, port = found.hostname, found.port
        except ValueError:
            return False
        if not name or found.path or found.query or found.fragment or "@" in host:
            return False
        own = (*self.hosts, *(() if server is None else server[:1]))
        return name in own and (port is None or self.port in (None, port))

    def is_token(self, given: str) -> bool:
        """Whether this is the token; takes as long whatever it is."""
        return hmac.compare_digest(given.encode(), (self.token or "").encode()) and self.token is not None

    def is_pass(self, header: str) -> bool:
        """Whether one of the cookies is ours."""
        try:
            jar = SimpleCookie(header)
        except CookieError:
            return False
        given = jar[self.cookie].value if self.cookie in jar else ""
        return hmac.compare_digest(given.encode(), self.pass_.encode())


class Guard:
    """The application behind the door."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self._app, self._door = app, door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request: refused, or handed on; in both cases with our headers."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # nothing here speaks WebSocket
            await send({"type": "websocket.close", "code": 1008})
            return
        refusal = self._refusal(scope)
        await (refusal or self._app)(scope, receive, _with_headers(send))

    def _refusal(self, scope: Scope) -> Response | None:
        headers = _single(scope)
        if scope["method"] not in ("GET", "HEAD"):
            return _no(405, "This server only shows; use GET or HEAD.", {"allow": "GET, HEAD"})
        if (
            len(scope.get("raw_path") or scope["path"].encode()) > PATH_BYTES
            or len(scope["query_string"]) > QUERY_BYTES
        ):
            return _no(414, f"The address is too long; a query may have {QUERY_BYTES:,} bytes.")
        if headers is None:
            return _no(400, "A header that may be there once is there twice.")
        if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
            return _no(413, "Requests to look have no body.")
        if not self._door.knows(headers.get("host", ""), scope.get("server")):
            return _no(403, "This server does not answer to that name; `airfl serve --allow-host NAME` adds one.")
        if self._is_foreign(scope, headers):
            return _no(403, "Another site's page asked for this; open it yourself.")
        return None if self._door.token is None else self._unless_known(scope, headers)

    def _is_foreign(self, scope: Scope, headers: Mapping[str, str]) -> bool:
        """A page of another site may link here, and may not fetch, embed or run anything."""
        origin = headers.get("origin")
        if origin is not None and (
            origin == "null" or not self._door.knows(urlsplit(origin).netloc, scope.get("server"))
        ):
            return True
        if headers.get("sec-fetch-site", "none") not in FOREIGN:
            return False
        is_link = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
        return not is_link

    def _unless_known(self, scope: Scope, headers: Mapping[str, str]) -> Response | None:
        """Let in who has the cookie; give one to who has the token; ask everybody else."""
        if scope["path"].startswith("/static/"):  # the package's own files, which the asking page needs
            return None
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in query if name == "token"]
        if len(given) == 1 and self._door.is_token(given[0].strip()):
            rest = urlencode([pair for pair in query if pair[0] != "token"])
            # A page that goes on by itself, and not a redirect: who came by a link from elsewhere would arrive without
            # the cookie, which is for requests that begin here.
            there = f"{scope['path']}{'?' if rest else ''}{rest}"
            there = "/" + there.lstrip("/\\")
            answer = HTMLResponse(page("enter.html.j2", there=there))
            answer.set_cookie(self._door.cookie, self._door.pass_, path="/", httponly=True, samesite="strict")
            return answer
        if self._door.is_pass(headers.get("cookie", "")):
            return None
        is_page = "text/html" in headers.get("accept", "")
        if not is_page or scope["path"].startswith(("/api/", "/files/")):
            return _no(401, "A token is asked for: open the address that `airfl serve` printed.")
        return HTMLResponse(page("ask.html.j2", wrong=bool(given)), 401)


def _no(status: int, why: str, headers: dict[str, str] | None = None) -> Response:
    return PlainTextResponse(f"{why}\n", status, headers)


def _single(scope: Scope) -> dict[str, str] | None:
    """The headers by name; None where one that decides something is there twice."""
    found: dict[str, str] = {}
    for raw, value in scope["headers"]:
        name = raw.decode("latin-1").lower()
        if name in found and name in ("host", "origin", "content-length", "transfer-encoding", "sec-fetch-site"):
            return None
        joined = value.decode("latin-1")
        found[name] = f"{found[name]}; {joined}" if name in found else joined
    return found


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            there = {name.lower() for name, _ in message.get("headers", [])}
            more = {"cache-control": "no-store", **HEADERS}
            message = {**message, "headers": [*message.get("headers", [])]}
            message["headers"] += [(k.encode(), v.encode()) for k, v in more.items() if k.encode() not in there]
        await send(message)

    return sending
