"""Settings of a round made by hand, for tests of the uplinks alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from airfl.air import Setting


def setting_of(round_index, gains, noise_var, noise_power, channels=None, tx_scaling=None, combiner=None) -> Setting:
    """A setting with these gains [trials, K] and noise [trials]; what is not given is that of an ideal channel."""
    active = np.broadcast_to(np.arange(gains.shape[1]), tuple(gains.shape))
    given = {"channels": channels, "tx_scaling": tx_scaling, "combiner": combiner}
    return replace(
        Setting.ideal(round_index, active, 1.0),
        gains=gains,
        noise_var=noise_var,
        unknown_var=noise_var,
        noise_power=noise_power,
        **{name: value for name, value in given.items() if value is not None},
    )
