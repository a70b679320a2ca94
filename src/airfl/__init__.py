"""airfl: federated learning over the air, with differential privacy paid by the radio channel.

import airfl

result = airfl.run(airfl.preset("demo").replace({"system.rounds": 5}))
print(result, result.epsilon(delta=1e-6))
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from airfl.version import __version__

if TYPE_CHECKING:
    from airfl.analysis.call import plan
    from airfl.analysis.convergence import ConvergenceBound
    from airfl.config import Config, json_schema, preset, preset_names, read
    from airfl.devices import Dataset
    from airfl.errors import DivergedError, InputError
    from airfl.privacy import BudgetError, Ledger, RoundEvent, Sampling, gaussian_delta, gaussian_epsilon, gaussian_mu
    from airfl.runs import Progress, Result, SchemeResult, load, save
    from airfl.runs.call import run
    from airfl.sweeps.call import sweep

#: Where each public name lives. They are imported when first used, so that `airfl --help` need not load torch.
_HOME = {
    "airfl.config": ("Config", "json_schema", "preset", "preset_names", "read"),
    "airfl.analysis.call": ("plan",),
    "airfl.analysis.convergence": ("ConvergenceBound",),
    "airfl.devices": ("Dataset",),
    "airfl.errors": ("DivergedError", "InputError"),
    "airfl.privacy": (
        "BudgetError",
        "Ledger",
        "RoundEvent",
        "Sampling",
        "gaussian_delta",
        "gaussian_epsilon",
        "gaussian_mu",
    ),
    "airfl.runs": ("Progress", "Result", "SchemeResult", "load", "save"),
    "airfl.runs.call": ("run",),
    "airfl.sweeps.call": ("sweep",),
}

__all__ = [
    "BudgetError",
    "Config",
    "ConvergenceBound",
    "Dataset",
    "DivergedError",
    "InputError",
    "Ledger",
    "Progress",
    "Result",
    "RoundEvent",
    "Sampling",
    "SchemeResult",
    "__version__",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_mu",
    "json_schema",
    "load",
    "plan",
    "preset",
    "preset_names",
    "read",
    "run",
    "save",
    "sweep",
]


def __getattr__(name: str) -> Any:
    for module, names in _HOME.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module `airfl` has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
