"""The application: three pages, three answers in JSON, files as they lie there, and our own scripts and styles."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from airfl.errors import InputError
from airfl.linkplan import WORDS, scenario_names
from airfl.privacy import PrivacyError
from airfl.web.controls import described, read_query, rivals
from airfl.web.drawing import Drawer, NotDrawn
from airfl.web.guard import Door, Guard
from airfl.web.items import FILES, Busy
from airfl.web.limits import ANSWER_SECONDS, AT_WORK, DRAW_SECONDS, DRAWING, MOST_OVERLAID, VALUE_CHARACTERS
from airfl.web.pages import KINDS, json_of, page, static_files
from airfl.web.places import file_below
from airfl.web.planner import answer_to
from airfl.web.rows import COLUMNS, axes_of, chosen, ordered, paged

if TYPE_CHECKING:  # they load PyTorch, and the planner does without
    from airfl.web.detail import Details
    from airfl.web.library import Library


@dataclass
class Site:
    """What the pages share.

    Attributes:
        library: of runs; None where there is no folder.
        seconds: that an answer may take, and one for which channels are drawn.
    """

    library: Library | None
    drawer: Drawer = field(default_factory=Drawer)
    seconds: float = ANSWER_SECONDS
    draw_seconds: float = DRAW_SECONDS

    def __post_init__(self) -> None:
        self.details: Details | None = None
        if self.library is not None:
            from airfl.web.detail import Details

            self.details = Details(self.library.root)
        self._limiters: dict[int, anyio.CapacityLimiter] = {}

    async def work(self, call: Callable[[], Any], seconds: float | None = None, at_once: int = AT_WORK) -> Any:
        """Do it in a thread, and stop waiting when it takes too long.

        Args:
            at_once: how many may do such work: what is slow has places of its own, so that it stops nothing else.
        """
        limiter = self._limiters.setdefault(at_once, anyio.CapacityLimiter(at_once))
        try:
            with anyio.fail_after(seconds or self.seconds):
                return await anyio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=limiter)
        except (TimeoutError, Busy):
            raise HTTPException(503, "This takes longer than a page waits; try again.", {"retry-after": "3"}) from None
        except (InputError, PrivacyError) as error:
            raise HTTPException(400, str(error)) from None


def make_app(runs: str | Path | None, door: Door, site: Site | None = None) -> ASGIApp:
    """The whole application behind its door.

    Args:
        runs: the folder that is shown; None: the planner alone.
    """
    if site is None and runs is not None:
        from airfl.web.library import Library

        site = Site(Library(Path(runs)))
    site = site or Site(None)
    routes = [
        Route("/", _home),
        Route("/plan", functools.partial(_plan_page, site)),
        Route("/runs", functools.partial(_runs_page, site)),
        Route("/view", functools.partial(_view_page, site)),
        Route("/api/plan", functools.partial(_plan, site)),
        Route("/api/rows", functools.partial(_rows, site)),
        Route("/api/view", functools.partial(_view, site)),
        Route("/files/{name}", functools.partial(_file, site)),
        Route("/static/{name}", _static),
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _refused, Exception: _broken})
    return Guard(app, door)


async def _home(request: Request) -> Response:
    return RedirectResponse("plan", 307)


async def _plan_page(site: Site, request: Request) -> Response:
    shown = {"scenarios": scenario_names(), "groups": described(), "words": list(WORDS), "rivals": rivals()}
    return HTMLResponse(page("plan.html.j2", has_runs=site.library is not None, **shown))


async def _runs_page(site: Site, request: Request) -> Response:
    _library(site)
    return HTMLResponse(page("runs.html.j2", live=True))


async def _view_page(site: Site, request: Request) -> Response:
    _library(site)
    return HTMLResponse(page("view.html.j2", live=True))


async def _plan(site: Site, request: Request) -> Response:
    pairs = list(request.query_params.multi_items())
    live = ("live", "1") in pairs
    try:
        asked = read_query([pair for pair in pairs if pair[0] != "live"])
    except InputError as error:
        raise HTTPException(400, str(error)) from None

    def answer() -> dict[str, Any]:
        try:
            return answer_to(asked, site.drawer, live=True)
        except NotDrawn as error:
            return {"not_drawn": str(error)}

    found = await site.work(answer)
    if "not_drawn" in found and not live:
        found = await site.work(lambda: answer_to(asked, site.drawer), site.draw_seconds + 5.0, DRAWING)
    return _json(request, found)


async def _rows(site: Site, request: Request) -> Response:
    library, query = _library(site), request.query_params
    wanted, by, folder = (query.get(name, "")[:VALUE_CHARACTERS] for name in ("q", "sort", "in"))
    number = query.get("page", "1")
    if not (number.isascii() and number.isdecimal() and len(number) < 10):
        raise HTTPException(400, "`page` must be a whole number")
    return _json(request, await site.work(lambda: rows_shown(library, wanted, by, folder, int(number))))


def rows_shown(library: Library, wanted: str, by: str, folder: str, number: int) -> dict[str, Any]:
    """One page of the table, and what is beside it."""
    snapshot = library.look(ANSWER_SECONDS)
    matching = ordered(chosen(snapshot.rows, wanted, folder), by)
    rows, number, pages = paged(matching, number)
    return {
        "version": snapshot.version,
        "live": snapshot.is_live,
        "notes": snapshot.notes,
        "items": [item.shown for item in snapshot.items],
        "claims": {i.folder: i.claims for i in snapshot.items if i.claims and folder in (i.folder, "")},
        "columns": list(COLUMNS),
        "axes": axes_of(snapshot.rows),
        "rows": rows,
        "total": len(snapshot.rows),
        "matching": len(matching),
        "page": number,
        "pages": pages,
    }


async def _view(site: Site, request: Request) -> Response:
    library, details = _library(site), site.details
    assert details is not None
    asked = request.query_params.getlist("row")
    if not 1 <= len(asked) <= MOST_OVERLAID:
        raise HTTPException(400, f"name 1 to {MOST_OVERLAID} rows, `row=…` for each; got {len(asked)}")

    def answer() -> dict[str, Any]:
        snapshot = library.look(ANSWER_SECONDS)
        return {
            "version": snapshot.version,
            "live": snapshot.is_live,
            "rows": [_one(details, snapshot, row_id) for row_id in dict.fromkeys(asked)],
        }

    return _json(request, await site.work(answer))


def _one(details: Details, snapshot: Any, row_id: str) -> dict[str, Any]:
    """A row in full, or what is wrong with it: the others are shown all the same."""
    try:
        return details.of(snapshot, row_id)
    except KeyError:
        return {"problem": f"there is no row `{row_id[:100]}` here", "id": row_id[:100]}
    except InputError as error:
        return {"problem": str(error), "id": row_id[:100]}


async def _file(site: Site, request: Request) -> Response:
    """A file of a run or a study, to keep; a browser never shows it, whatever is in it."""
    library, name = _library(site), request.path_params["name"]
    folder = request.query_params.get("in", "")

    def find() -> Path | None:
        items = {item.folder: item for item in library.look(ANSWER_SECONDS).items}
        item = items.get(folder)
        if item is None or name not in FILES.get(item.kind, ()) or item.state == "refused":
            return None
        return file_below(library.root, item.path, name)

    path = await site.work(find)
    if path is None:
        raise HTTPException(404, "There is no such file here.")
    headers = {"content-security-policy": "default-src 'none'; sandbox; frame-ancestors 'none'"}
    return FileResponse(path, filename=name, media_type="application/octet-stream", headers=headers)


async def _static(request: Request) -> Response:
    found = static_files().get(request.path_params["name"])
    if found is None:
        raise HTTPException(404, "There is no such file here.")
    tag = f'"{hashlib.sha256(found).hexdigest()[:20]}"'
    headers = {"cache-control": "no-cache", "etag": tag}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    kind = KINDS[request.path_params["name"].rpartition(".")[2]]
    return Response(found, media_type=kind, headers=headers)


def _library(site: Site) -> Library:
    if site.library is None:
        raise HTTPException(404, "No folder of runs is shown; start with: airfl serve --runs FOLDER")
    return site.library


def _json(request: Request, content: Any) -> Response:
    """The same answer again is not sent again."""
    data = json_of(content).encode()
    tag = f'"{hashlib.sha256(data).hexdigest()[:20]}"'
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers={"etag": tag})
    return Response(data, media_type="application/json", headers={"etag": tag})


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if request.url.path.startswith("/api/"):
        return Response(
            json_of({"error": error.detail}), error.status_code, error.headers, media_type="application/json"
        )
    return PlainTextResponse(f"{error.detail}\n", error.status_code, error.headers)


async def _broken(request: Request, error: Exception) -> Response:
    """A defect of ours: the server stays up, and says no more than that."""
    return PlainTextResponse("Something went wrong here; the server's own output says what.\n", 500)
