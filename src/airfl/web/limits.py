"""What a request may be, and how long it may take."""

from __future__ import annotations

#: Bytes of a query, of a whole address, and of one request's head; browsers' own bookmarks are far below.
QUERY_BYTES, PATH_BYTES, HEAD_BYTES = 8_192, 2_048, 32_768
#: Names in a query, and characters of one value.
QUERY_NAMES, VALUE_CHARACTERS = 100, 500
#: Seconds until a request must be complete, until it is answered, and until channels that had to be drawn are.
HEAD_SECONDS, ANSWER_SECONDS, DRAW_SECONDS = 10.0, 20.0, 90.0
#: Requests at work, and those that wait for channels; seconds for which an idle connection is kept.
AT_WORK, DRAWING, IDLE_SECONDS = 8, 2, 5
#: Connections, and those of one address.
CONNECTIONS, OF_ADDRESS = 64, 32
#: Rows of a page, runs that are laid over each other, and points of a curve.
PAGE_ROWS, MOST_OVERLAID, CURVE_POINTS = 100, 12, 400
#: Folders deep and in number that are looked through for runs, and rows that are kept in all.
DEEPEST, MOST_FOLDERS, MOST_ROWS = 6, 2_000, 200_000
#: A look at the folder holds for so many seconds; a lock that is younger is not tried.
LOOK_SECONDS, YOUNG_LOCK_SECONDS = 1.0, 2.0
