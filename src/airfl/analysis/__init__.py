"""Questions about a system rather than runs of it: audits, combiners side by side, ε over rounds, covers, convergence.

In: a configuration or a few numbers. Out: findings. May import ``runs`` and all before it.
"""

from airfl.analysis.audit import Audit, SelfTest, audit_linear, audit_one_run, audit_run, audit_steps, self_test
from airfl.analysis.combiners import CombinerStudy, compare_combiners
from airfl.analysis.cover_plan import CoverPlan, plan_cover
from airfl.analysis.curves import Curve, privacy_curves

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
