"""The air under Flower: a strategy whose sum is received by antennas, and an accountant in Flower's own terms.

In: a configuration and what nodes answer. Out: Flower's arrays, metrics with ε in them, a folder. May import ``runs``
and all before it; needs the extra ``airfl[flower]``.
"""

try:
    import flwr.serverapp as _serverapp  # noqa: F401
except ModuleNotFoundError as _error:
    raise ImportError(
        "airfl.flower needs Flower, which is not installed; install the extra `airfl[flower]`"
    ) from _error

from airfl.flower.accountant import AirAccountant, AirPrivacyConfig
from airfl.flower.strategy import OverTheAir

__all__ = ["AirAccountant", "AirPrivacyConfig", "OverTheAir"]
