"""Running schemes, keeping their results, and bringing finished runs back."""

from airfl.runs.audit import Audit, audit_linear, audit_one_run, audit_run
from airfl.runs.combiners import CombinerStudy, compare_combiners
from airfl.runs.curves import Curve, privacy_curves
from airfl.runs.execute import Progress, pick_device, run
from airfl.runs.result import Result, SchemeResult
from airfl.runs.store import load, prepare_folder, read_ledgers, save

__all__ = [
    "Audit",
    "CombinerStudy",
    "Curve",
    "Progress",
    "Result",
    "SchemeResult",
    "audit_linear",
    "audit_one_run",
    "audit_run",
    "compare_combiners",
    "load",
    "pick_device",
    "prepare_folder",
    "privacy_curves",
    "read_ledgers",
    "run",
    "save",
]
