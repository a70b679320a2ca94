"""What stands before the pages: only looking, only from here, only what is small; every answer says what it may do."""

from __future__ import annotations

import socket
import sys
import threading
import time
from contextlib import ExitStack, contextmanager, suppress

import pytest

pytest.importorskip("starlette")

import uvicorn

from airfl.errors import InputError
from airfl.web import guard, limits, server
from airfl.web.app import Site, make_app
from airfl.web.guard import HEADERS, Door
from airfl.web.limits import PATH_BYTES, QUERY_BYTES
from tests.web_client import PORT, client_of

OPEN = Door(port=PORT)
TOKEN = "a-token-for-the-tests"
HTML = {"accept": "text/html"}


@pytest.fixture(scope="module")
def site():
    return Site(None)


@pytest.fixture(scope="module")
def client(site):
    with client_of(make_app(None, OPEN, site)) as found:
        yield found


@pytest.fixture
def closed(site):
    with client_of(make_app(None, Door(port=PORT, token=TOKEN), site)) as found:
        yield found


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "get"])
@pytest.mark.parametrize("path", ["/plan", "/api/plan", "/nowhere"])
def test_whoever_does_not_look_is_refused(client, method, path):
    answer = client.ask(path, method=method)
    assert answer.status == 405
    assert answer.headers["allow"] == "GET, HEAD"


def test_head_is_get_without_a_body(client):
    """The server leaves the body out, see below."""
    got, head = client.ask("/plan"), client.ask("/plan", method="HEAD")
    assert (got.status, head.status) == (200, 200)
    assert head.headers["content-length"] == str(len(got.body))


@pytest.mark.parametrize(
    ("address", "more", "status"),
    [
        ("/plan", {}, 200),
        ("/static/airfl.css", {}, 200),
        ("/api/plan?scenario=satellite-iot", {}, 200),
        ("/api/plan?scenario=nowhere", {}, 400),
        ("/nowhere", {}, 404),
        ("/static/../app.py", {}, 404),
        ("/plan", {"method": "POST"}, 405),
        ("/plan", {"host": "elsewhere.example"}, 403),
        (f"/plan?{'a' * QUERY_BYTES}b", {}, 414),
    ],
)
def test_every_answer_keeps_the_browser_in_bounds(client, address, more, status):
    answer = client.ask(address, **more)
    assert answer.status == status
    for name, value in HEADERS.items():
        assert answer.headers[name] == value
    assert answer.headers["content-security-policy"].startswith("default-src 'self';")
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.headers["x-frame-options"] == "DENY"
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    "host",
    ["elsewhere.example", f"elsewhere.example:{PORT}", "127.0.0.1.elsewhere.example", "127.0.0.1:1", "", "localhost.",
     f"me@127.0.0.1:{PORT}", f"127.0.0.1:{PORT}/x", "127.0.0.1:port", "[::1", "0.0.0.0", "*", f"127.0.0.1:{PORT}, a"],
)  # fmt: skip
def test_another_name_is_refused(client, host):
    """A page whose name somebody's DNS points to this machine (DNS rebinding)."""
    assert client.ask("/plan", host=host).status == 403


def test_no_name_and_two_names_are_refused(client):
    assert client.ask("/plan", host=None).status == 403
    assert client.ask("/plan", [("Host", f"127.0.0.1:{PORT}")]).status == 400


@pytest.mark.parametrize("host", [f"127.0.0.1:{PORT}", f"localhost:{PORT}", f"LOCALHOST:{PORT}", f"[::1]:{PORT}"])
def test_our_own_names(client, host):
    assert client.ask("/plan", host=host).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://elsewhere.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "script"},
        {"sec-fetch-site": "same-site", "sec-fetch-mode": "cors", "sec-fetch-dest": "empty"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"},
        {"sec-fetch-site": "cross-site"},
    ],
)
def test_pages_of_other_sites_get_nothing(client, headers):
    assert client.ask("/api/plan?scenario=satellite-iot", headers).status == 403


def test_a_link_from_elsewhere_opens(client):
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert client.ask("/plan?scenario=satellite-iot", link).status == 200
    own = {"sec-fetch-site": "same-origin", "origin": f"http://127.0.0.1:{PORT}"}
    assert client.ask("/api/plan?scenario=satellite-iot", own).status == 200


def test_long_addresses_and_bodies_are_refused(client):
    assert client.ask(f"/plan?x={'a' * 10_000_000}").status == 414
    assert client.ask(f"/{'a' * (PATH_BYTES + 1)}").status == 414
    assert client.ask("/plan", {"content-length": "1"}).status == 413
    assert client.ask("/plan", {"transfer-encoding": "chunked"}).status == 413
    assert client.ask("/plan", {"content-length": "0"}).status == 200


def test_websockets_are_closed(client):
    said = []

    async def talk():
        async def send(message):
            said.append(message)

        await client.app({"type": "websocket", "path": "/plan", "headers": []}, None, send)

    client.portal.call(talk)
    assert said == [{"type": "websocket.close", "code": 1008}]


# ------------------------------------------------------------------------------------------------ the token


def test_a_token_is_asked_for(closed):
    for address in (
        "/plan",
        "/runs",
        "/api/plan?scenario=satellite-iot",
        "/api/rows",
        "/files/x?in=y",
        "/nowhere",
        "/",
    ):
        assert closed.ask(address).status == 401, address
        assert closed.ask(address, HTML).status == 401, address
    page = closed.ask("/plan", HTML).text
    assert 'name="token"' in page
    assert "<label" in page
    assert closed.ask("/static/airfl.css").status == 200


def test_the_token_becomes_a_cookie(closed):
    entered = closed.ask(f"/plan?scenario=satellite-iot&token={TOKEN}", HTML)
    assert entered.status == 200
    assert 'url=/plan?scenario=satellite-iot"' in entered.text
    assert TOKEN not in entered.text
    cookie = entered.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    assert TOKEN not in cookie
    pair = cookie.split(";")[0]
    assert closed.ask("/api/plan?scenario=satellite-iot", {"cookie": pair}).status == 200
    assert closed.ask("/plan", {"cookie": f"other=1; {pair}"}).status == 200
    for wrong in (pair[:-1], pair + "0", pair.split("=")[0] + "=", f"airfl-{PORT}={TOKEN}", "=;;=", "a" * 5000):
        assert closed.ask("/plan", {"cookie": wrong}).status == 401, wrong


@pytest.mark.parametrize(
    "query", ["token=", "token=wrong", f"token={TOKEN}x", f"token={TOKEN[:-1]}", f"token={TOKEN}&token={TOKEN}",
              f"Token={TOKEN}", "token=%ff%00", "token=ε"],
)  # fmt: skip
def test_a_wrong_token_opens_nothing(closed, query):
    answer = closed.ask(f"/plan?{query}", HTML)
    assert answer.status == 401
    assert "set-cookie" not in answer.headers


def test_a_cookie_is_worth_nothing_after_a_start():
    one, other = (Door(port=PORT, token=TOKEN) for _ in range(2))
    assert one.is_pass(f"{one.cookie}={one.pass_}")
    assert not other.is_pass(f"{one.cookie}={one.pass_}")


def test_entering_leads_nowhere_else(closed):
    for path in ("//elsewhere.example/", "/\\elsewhere.example", "///elsewhere.example"):
        page = closed.ask(f"{path}?token={TOKEN}", HTML).text
        assert "url=/elsewhere.example" in page, path


def test_tokens_are_compared_in_constant_time(closed, monkeypatch):
    seen, real = [], guard.hmac.compare_digest

    def compare(one, other):
        seen.append((one, other))
        return real(one, other)

    monkeypatch.setattr(guard.hmac, "compare_digest", compare)
    closed.ask("/plan?token=w", HTML)
    closed.ask("/plan", {"cookie": f"airfl-{PORT}=w"})
    assert (b"w", TOKEN.encode()) in seen
    assert len(seen) >= 3


def test_away_from_this_machine_a_token_is_always_asked_for():
    for host, ask, asked in (("127.0.0.1", False, False), ("127.0.0.1", True, True), ("0.0.0.0", False, True)):
        with server.listen(host, 0) as listening:
            address = server.address_of(host, listening, (), ask=ask)
            assert (address.door.token is not None) == asked
            if address.door.token:
                assert len(address.door.token) >= 43  # 256 bits
                assert address.door.token in address.url
            assert not address.door.knows("elsewhere.example")
    with server.listen("127.0.0.1", 0) as listening:
        assert server.address_of("127.0.0.1", listening, ("Pages.Example",), ask=False).door.knows("pages.example:443")
        with pytest.raises(InputError, match="cannot listen"):
            server.listen("127.0.0.1", listening.getsockname()[1])


# ------------------------------------------------------------------------------------------------ the real server


@contextmanager
def serving(app):
    """The application as `airfl serve` runs it, on a socket."""
    made = []

    class Server(uvicorn.Server):
        def __init__(self, config):
            super().__init__(config)
            made.append(self)

    with server.listen("127.0.0.1", 0) as listening, pytest.MonkeyPatch.context() as patch:
        patch.setattr(server.uvicorn, "Server", Server)
        thread = threading.Thread(target=server.run_server, args=(app(listening), listening))
        thread.start()
        while not made or not made[0].started:
            time.sleep(0.01)
        try:
            yield listening.getsockname()[1]
        finally:
            made[0].should_exit = True
            thread.join(10.0)


def talk(port, data, wait=5.0, source="127.0.0.1"):
    """What the server answers to some bytes, until it closes or falls silent."""
    found = b""
    with socket.create_connection(("127.0.0.1", port), timeout=wait, source_address=(source, 0)) as line:
        try:
            line.sendall(data)
            while part := line.recv(65536):
                found += part
                if b"\r\n\r\n" in found and b"connection: close" not in data.lower():
                    break
        except (TimeoutError, ConnectionError):
            pass
    return found


@contextmanager
def dripping(port, sources, count, data=b"GET /plan HTTP/1.1\r\nX: slow"):
    """Connections that begin a request."""
    with ExitStack() as stack:
        lines = []
        for number in range(count):
            address = (sources[number % len(sources)], 0)
            line = socket.create_connection(("127.0.0.1", port), timeout=30, source_address=address)
            lines.append(stack.enter_context(line))
            with suppress(ConnectionError):  # closed already
                line.sendall(data)
        yield lines


def are_open(lines):
    """How many of some connections nobody has closed."""
    count = 0
    for line in lines:
        line.setblocking(False)
        try:
            count += line.recv(1) != b""
        except BlockingIOError:
            count += 1
        except ConnectionError:
            continue
    return count


#: On Linux all of 127.0.0.0/8 is this machine.
NEIGHBOURS = [f"127.0.0.{last}" for last in range(2, 8)]
MANY_ADDRESSES = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="this machine has one address here")


@pytest.mark.parametrize(
    ("sources", "most"),
    [(["127.0.0.1"], limits.OF_ADDRESS), pytest.param(NEIGHBOURS, limits.CONNECTIONS, marks=MANY_ADDRESSES)],
)
def test_who_drips_keeps_nobody_out(site, monkeypatch, sources, most):
    monkeypatch.setattr(server, "HEAD_SECONDS", 600.0)  # none of them is cut off for being slow
    with serving(lambda listening: make_app(None, Door(port=listening.getsockname()[1]), site)) as port:
        asked = f"GET /plan HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode()
        with dripping(port, sources, 150) as lines:
            for _ in range(3):
                assert b" 200 " in talk(port, asked)
            assert most - 5 <= are_open(lines) < most
        assert b" 200 " in talk(port, asked)


@MANY_ADDRESSES
def test_who_waits_for_many_answers_keeps_nobody_else_out(monkeypatch):
    """The connections of an address that are all being answered are its share; the rest is for others."""
    over, begun = threading.Event(), threading.Semaphore(0)
    monkeypatch.setattr("airfl.web.app.answer_to", lambda *a, **k: over.wait(20) and {})
    refusal = guard.Guard._refusal
    monkeypatch.setattr(guard.Guard, "_refusal", lambda self, scope: begun.release() or refusal(self, scope))
    with serving(lambda listening: make_app(None, Door(port=listening.getsockname()[1]), Site(None))) as port:
        host = f"Host: 127.0.0.1:{port}\r\n\r\n".encode()
        slow = b"GET /api/plan?scenario=satellite-iot&live=1 HTTP/1.1\r\n" + host
        with dripping(port, ["127.0.0.1"], limits.OF_ADDRESS, slow) as lines:
            assert all(begun.acquire(timeout=30) for _ in lines)
            assert talk(port, b"GET /plan HTTP/1.1\r\n" + host) == b""
            assert b" 200 " in talk(port, b"GET /plan HTTP/1.1\r\n" + host, source=NEIGHBOURS[0])
            assert are_open(lines) == limits.OF_ADDRESS
            over.set()


def test_attacks_on_the_wire(site, monkeypatch):
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.3)
    with serving(lambda listening: make_app(None, Door(port=listening.getsockname()[1]), site)) as port:
        ours = f"Host: 127.0.0.1:{port}\r\n".encode()
        assert b" 200 " in talk(port, b"GET /plan HTTP/1.1\r\n" + ours + b"Connection: close\r\n\r\n")
        assert b" 403 " in talk(port, b"GET /plan HTTP/1.1\r\nHost: elsewhere.example\r\n\r\n")
        assert b" 405 " in talk(port, b"POST /plan HTTP/1.1\r\n" + ours + b"Content-Length: 0\r\n\r\n")
        assert b" 404 " in talk(port, b"GET /static/../../../../etc/passwd HTTP/1.1\r\n" + ours + b"\r\n")
        assert b" 404 " in talk(port, b"GET /static/..%2f..%2fguard.py HTTP/1.1\r\n" + ours + b"\r\n")
        assert b" 413 " in talk(port, b"GET /plan HTTP/1.1\r\n" + ours + b"Content-Length: 9\r\n\r\nx")
        for long in (10_000, 10_000_000):
            begin = talk(port, b"GET /plan?" + b"a" * long + b" HTTP/1.1\r\n" + ours + b"\r\n")[:12]
            assert begin in (b"HTTP/1.1 414", b"HTTP/1.1 400", b""), long  # cut off while it still sends: nothing
        assert talk(port, b"nonsense\r\n\r\n").startswith(b"HTTP/1.1 400")
        assert talk(port, b"GET /plan HTTP/1.1\r\nX: slow", wait=3.0) == b""  # closed, not waited for
        head = talk(port, b"HEAD /plan HTTP/1.1\r\n" + ours + b"Connection: close\r\n\r\n")
        assert b" 200 " in head
        assert head.endswith(b"\r\n\r\n")


def test_an_answer_that_takes_too_long_is_given_up(monkeypatch):
    slow = Site(None, seconds=0.05)
    monkeypatch.setattr("airfl.web.app.answer_to", lambda *a, **k: time.sleep(0.3))
    with client_of(make_app(None, OPEN, slow)) as client:
        answer = client.ask("/api/plan?scenario=satellite-iot&live=1")
        assert answer.status == 503
        assert answer.headers["retry-after"] == "3"
        assert client.ask("/plan").status == 200


def test_a_defect_of_ours_says_no_more_than_that(monkeypatch):
    def broken(*a, **k):
        raise RuntimeError("a secret")

    monkeypatch.setattr("airfl.web.app.answer_to", broken)
    with client_of(make_app(None, OPEN, Site(None))) as client:
        answer = client.ask("/api/plan?scenario=satellite-iot")
        assert answer.status == 500
        assert "secret" not in answer.text
        assert client.ask("/plan").status == 200
