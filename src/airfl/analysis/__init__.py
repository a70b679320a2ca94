"""Questions about a system rather than runs of it: audits, combiners side by side, ε over rounds, covers, convergence.

In: a configuration or a few numbers. Out: findings. May import ``runs`` and all before it. Names are imported when
first used: a plan from tables need not load torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airfl.analysis.audit import Audit, SelfTest, audit_linear, audit_one_run, audit_run, audit_steps, self_test
    from airfl.analysis.combiners import CombinerStudy, compare_combiners
    from airfl.analysis.cover_plan import CoverPlan, plan_cover
    from airfl.analysis.curves import Curve, privacy_curves

#: Where each name lives.
_HOME = {
    "audit": ("Audit", "SelfTest", "audit_linear", "audit_one_run", "audit_run", "audit_steps", "self_test"),
    "combiners": ("CombinerStudy", "compare_combiners"),
    "cover_plan": ("CoverPlan", "plan_cover"),
    "curves": ("Curve", "privacy_curves"),
}

__all__ = [
    "Audit",
    "CombinerStudy",
    "CoverPlan",
    "Curve",
    "SelfTest",
    "audit_linear",
    "audit_one_run",
    "audit_run",
    "audit_steps",
    "compare_combiners",
    "plan_cover",
    "privacy_curves",
    "self_test",
]


def __getattr__(name: str) -> Any:
    for module, names in _HOME.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
