"""Running schemes, keeping their results, and bringing finished runs back."""

from airfl.runs.audit import Audit, SelfTest, audit_linear, audit_one_run, audit_run, audit_steps, self_test
from airfl.runs.combiners import CombinerStudy, compare_combiners
from airfl.runs.curves import Curve, privacy_curves
from airfl.runs.execute import Progress, pick_device, run
from airfl.runs.executors import make_executor
from airfl.runs.lock import locked
from airfl.runs.manifest import is_run
from airfl.runs.planfile import find_plan, open_folder
from airfl.runs.result import Result, SchemeResult
from airfl.runs.signals import Interrupts
from airfl.runs.store import load, prepare_folder, read_ledgers, save, write_run
from airfl.runs.sweep import Standing, standing_of, start_or_resume, summarise
from airfl.runs.sweep import sweep as run_sweep
from airfl.runs.tracking import Tracked, make_trackers
from airfl.runs.unfinished import Keeper, claimed, resumed

__all__ = [
    "Audit",
    "CombinerStudy",
    "Curve",
    "Interrupts",
    "Keeper",
    "Progress",
    "Result",
    "SchemeResult",
    "SelfTest",
    "Standing",
    "Tracked",
    "audit_linear",
    "audit_one_run",
    "audit_run",
    "audit_steps",
    "claimed",
    "compare_combiners",
    "find_plan",
    "is_run",
    "load",
    "locked",
    "make_executor",
    "make_trackers",
    "open_folder",
    "pick_device",
    "prepare_folder",
    "privacy_curves",
    "read_ledgers",
    "resumed",
    "run",
    "run_sweep",
    "save",
    "self_test",
    "standing_of",
    "start_or_resume",
    "summarise",
    "write_run",
]
