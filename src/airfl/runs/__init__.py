"""Running schemes, keeping their results, and bringing finished runs back."""

from airfl.runs.audit import Audit, SelfTest, audit_linear, audit_one_run, audit_run, audit_steps, self_test
from airfl.runs.combiners import CombinerStudy, compare_combiners
from airfl.runs.curves import Curve, privacy_curves
from airfl.runs.execute import Progress, pick_device, run
from airfl.runs.executors import make_executor
from airfl.runs.result import Result, SchemeResult
from airfl.runs.store import load, prepare_folder, read_ledgers, save
from airfl.runs.sweep import Standing, find_plan, locked, open_folder, standing_of, start_or_resume, summarise
from airfl.runs.sweep import sweep as run_sweep
from airfl.runs.tracking import Tracked, make_trackers

__all__ = [
    "Audit",
    "CombinerStudy",
    "Curve",
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
    "compare_combiners",
    "find_plan",
    "load",
    "locked",
    "make_executor",
    "make_trackers",
    "open_folder",
    "pick_device",
    "prepare_folder",
    "privacy_curves",
    "read_ledgers",
    "run",
    "run_sweep",
    "save",
    "self_test",
    "standing_of",
    "start_or_resume",
    "summarise",
]
