"""airfl: federated learning over the air, with differential privacy paid by the radio channel.

import airfl

result = airfl.run(airfl.preset("demo").replace({"system.rounds": 5}))
print(result.summary["schemes"]["airfl-dp"]["epsilon"])
"""

from airfl.config import Config, json_schema, preset, preset_names, read
from airfl.devices import Dataset
from airfl.errors import DivergedError, InputError
from airfl.privacy import BudgetError, Ledger, RoundEvent, Sampling, gaussian_delta, gaussian_epsilon, gaussian_mu
from airfl.runs import Result, SchemeResult, load, run, save
from airfl.version import __version__

__all__ = [
    "BudgetError",
    "Config",
    "Dataset",
    "DivergedError",
    "InputError",
    "Ledger",
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
    "preset",
    "preset_names",
    "read",
    "run",
    "save",
]
