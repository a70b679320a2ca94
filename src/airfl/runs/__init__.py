"""Running schemes, keeping their results, and bringing finished runs back."""

from airfl.runs.combiners import CombinerStudy, compare_combiners
from airfl.runs.execute import Progress, pick_device, run
from airfl.runs.result import Result, SchemeResult
from airfl.runs.store import load, prepare_folder, read_ledgers, save

__all__ = [
    "CombinerStudy",
    "Progress",
    "Result",
    "SchemeResult",
    "compare_combiners",
    "load",
    "pick_device",
    "prepare_folder",
    "read_ledgers",
    "run",
    "save",
]
