"""The planner and the run browser as pages: what ``linkplan``, ``report``, ``runs`` and ``sweeps`` give, in a browser.

In: requests to look (GET and HEAD), a folder of runs. Out: pages, JSON, static files. Nothing is ever written but an
export. May import everything above it; starlette and uvicorn are the extra ``airfl[web]``.
"""

from __future__ import annotations

from importlib.util import find_spec

from airfl.errors import InputError


def require_extra() -> None:
    """Refuse to serve without what serves."""
    missing = [name for name in ("starlette", "uvicorn") if find_spec(name) is None]
    if missing:
        raise InputError(
            f'`airfl serve` needs {" and ".join(missing)}; install what is missing with: pip install "airfl[web]"'
        )
