"""Many runs: a study's plan, its batches, who works them off, and where it stands.

In: a study. Out: a folder of parts and receipts, rows. May import ``runs`` and all before it.
"""

from airfl.sweeps.executors import make_executor
from airfl.sweeps.planfile import find_plan, open_folder, plan_of
from airfl.sweeps.summary import ledgers_of, summarise
from airfl.sweeps.sweep import Standing, standing_of, start_or_resume
from airfl.sweeps.sweep import sweep as run_sweep

__all__ = [
    "Standing",
    "find_plan",
    "ledgers_of",
    "make_executor",
    "open_folder",
    "plan_of",
    "run_sweep",
    "standing_of",
    "start_or_resume",
    "summarise",
]
