"""The planner and the run browser as pages: what ``linkplan``, ``report``, ``runs`` and ``sweeps`` give, in a browser.

In: requests to look (GET and HEAD), a folder of runs. Out: pages, JSON, static files. Nothing is ever written but an
export. May import everything above it; starlette and uvicorn are the extra ``airfl[web]``.
"""

from __future__ import annotations

__all__: list[str] = []
