"""The server: uvicorn with limits, on this machine unless somebody says otherwise."""

from __future__ import annotations

import asyncio
import secrets
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from airfl.errors import InputError, in_words
from airfl.web.guard import LOOPBACK, Door
from airfl.web.limits import CONNECTIONS, HEAD_BYTES, HEAD_SECONDS, IDLE_SECONDS, OF_ADDRESS


class Impatient(H11Protocol):
    """A connection on which a request must be complete in time: who sends it byte by byte is cut off.

    Whoever opens many keeps nobody out: one more than there may be closes the one that has been idle longest.
    """

    _waiting: asyncio.TimerHandle | None = None
    _asked: float = 0.0

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._asked = self.loop.time()
        self._make_room()
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Wait on while a request is not complete."""
        super().data_received(data)
        state = self.conn.their_state
        if state is h11.SEND_BODY or (state is h11.IDLE and self.conn.trailing_data[0]):
            self._wait()
        elif state is not h11.IDLE:  # all of it is here; how long the answer may take is the application's business
            self._asked = self.loop.time()
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is there to wait for."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _make_room(self) -> None:
        """Close the longest idle connection of this address if it has too many, or of all if there are too many."""
        there = [one for one in self.connections if isinstance(one, Impatient) and not one.transport.is_closing()]
        own = [one for one in there if one.client and self.client and one.client[0] == self.client[0]]
        if len(own) <= OF_ADDRESS and len(there) < CONNECTIONS:
            return
        crowd = own if len(own) > OF_ADDRESS else there
        idle = [one for one in crowd if one is not self and not (one.cycle and not one.cycle.response_complete)]
        if not idle and crowd is there:  # all wait for answers, and so must this one
            return
        last = min(idle, key=lambda one: one._asked, default=self)
        last.transport.abort()
        self.connections.discard(last)  # the loop says that it is lost some time later; it must not count till then

    def _wait(self) -> None:
        if self._waiting is None:
            self._waiting = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _give_up(self) -> None:
        self._waiting = None
        if not self.transport.is_closing():
            self.transport.close()


@dataclass(frozen=True)
class Address:
    """Where the server listens, and what opens it.

    Attributes:
        door: who may come in.
    """

    host: str
    port: int
    door: Door

    @property
    def url(self) -> str:
        """To be opened in a browser, with the token where one is asked for."""
        shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        name = f"[{shown}]" if ":" in shown else shown
        token = "" if self.door.token is None else f"?{urlencode({'token': self.door.token})}"
        return f"http://{name}:{self.port}/plan{token}"


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0: any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
        found.listen(CONNECTIONS)
    except (OSError, OverflowError) as error:
        found.close()
        why = in_words(error) if isinstance(error, OSError) else "there is no such port"
        raise InputError(f"cannot listen on {host}, port {port}: {why}; try --port 0, which takes a free one") from None
    return found


def address_of(host: str, listening: socket.socket, names: tuple[str, ...], *, ask: bool) -> Address:
    """The address and its door: away from this machine a token is always asked for.

    Args:
        names: that ``Host`` may have beside the machine's own.
        ask: for a token on this machine too.
    """
    port = int(listening.getsockname()[1])
    is_local = host in LOOPBACK
    token = secrets.token_urlsafe(32) if ask or not is_local else None
    hosts = (*LOOPBACK, *(() if host in ("0.0.0.0", "::") else (host.lower(),)), *(name.lower() for name in names))
    return Address(host, port, Door(tuple(dict.fromkeys(hosts)), None if names else port, token))


def run_server(app: ASGIApp, listening: socket.socket) -> None:
    """Answer until Ctrl-C."""
    config = uvicorn.Config(
        app,
        http=Impatient,
        ws="none",
        lifespan="off",
        access_log=False,
        log_level="warning",
        server_header=False,
        date_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=2,
        h11_max_incomplete_event_size=HEAD_BYTES,
    )
    with suppress(KeyboardInterrupt):  # the usual way to stop it
        uvicorn.Server(config).run(sockets=[listening])
