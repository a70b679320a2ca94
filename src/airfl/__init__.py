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

__version__ = "0.1.0"

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
