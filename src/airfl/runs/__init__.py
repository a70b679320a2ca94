"""One run: driving the simulator, keeping its result in a folder, bringing it back, going on with it.

In: a configuration. Out: a ``Result``, and its folder. May import the simulator and all before it.
"""

from airfl.runs.execute import Progress, pick_device, run
from airfl.runs.lock import locked
from airfl.runs.manifest import is_run
from airfl.runs.result import Result, SchemeResult
from airfl.runs.signals import Interrupts
from airfl.runs.store import load, prepare_folder, read_ledgers, save, write_run
from airfl.runs.tracking import Tracked, make_trackers
from airfl.runs.unfinished import Keeper, claimed, resumed

__all__ = [
    "Interrupts",
    "Keeper",
    "Progress",
    "Result",
    "SchemeResult",
    "Tracked",
    "claimed",
    "is_run",
    "load",
    "locked",
    "make_trackers",
    "pick_device",
    "prepare_folder",
    "read_ledgers",
    "resumed",
    "run",
    "save",
    "write_run",
]
