"""Requests to the pages without a network: the application is called as a server would call it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal

PORT = 8765


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Client:
    app: Any
    portal: BlockingPortal

    def ask(
        self,
        address: str,
        headers: Mapping[str, str] | Sequence[tuple[str, str]] = (),
        method: str = "GET",
        host: str | None = f"127.0.0.1:{PORT}",
    ) -> Answer:
        path, _, query = address.partition("?")
        pairs = list(headers.items()) if isinstance(headers, Mapping) else list(headers)
        if host is not None:
            pairs.insert(0, ("host", host))
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in pairs],
            "client": ("127.0.0.1", 40000),
            "server": ("127.0.0.1", PORT),
        }
        return self.portal.call(self._call, scope)

    async def _call(self, scope: dict[str, Any]) -> Answer:
        sent: list[Any] = []

        heard: list[str] = []

        async def receive() -> dict[str, Any]:
            if heard:
                await anyio.sleep_forever()  # nobody hangs up
            heard.append("request")
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        try:
            await self.app(scope, receive, send)
        except Exception:  # after the answer: for the server's log
            if not sent:
                raise
        found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        body = b"".join(message.get("body", b"") for message in sent[1:])
        return Answer(sent[0]["status"], found, body)


@contextmanager
def client_of(app: Any) -> Iterator[Client]:
    with start_blocking_portal() as portal:
        yield Client(app, portal)
