"""An eavesdropper hears every device at least as well as the configured channels let a base station in her place."""

from __future__ import annotations

import numpy as np
import pytest

from airfl.channel import geometry, open_link

HERS = {"eavesdropper": {"distance_m": 30.0, "antennas": 2}}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"path_loss_exponent": 1.6},
        {"path_loss_exponent": 3.5, "loss_db": 20.0},
        {"shadowing_db": 8.0},
        {"path_loss": "3gpp-inh-nlos", "cell_radius_m": 60.0},
        {"fading": "3gpp-inh", "cell_radius_m": 50.0},
        {"fading": "3gpp-uma", "cell_radius_m": 120.0, "indoor_share": 0.0},
        {"device_gain_dbi": -30.0},
        {"device_gain_dbi": 5.0},
    ],
)
def test_she_hears_no_less_than_a_base_station_would(tiny, changes):
    """At the same distance her mean power is at least the drawn one, and never below free space."""
    values = {f"channel.{key}": value for key, value in changes.items()}
    many = {"system.num_devices": 200, "scheme.combiner": "auto", "system.num_antennas": 4}
    config = tiny.replace({**many, **values, **HERS})
    link = open_link(config, [0, 1])
    hers, law = link.listener, link.law
    x, y = config.eavesdropper.place
    channel = config.channel
    antennas = 10.0 ** ((channel.device_gain_dbi - channel.loss_db) / 10.0)
    for index in range(2):
        away = np.hypot(law.places_m[index][:, 0] - x, law.places_m[index][:, 1] - y)
        power = hers.amplitude[index] ** 2
        assert (power >= geometry.path_gain(np.maximum(away, 1.0), channel.carrier_hz) * (1 - 1e-12)).all()
        alike = away <= law.distances_m[index]  # she is nearer than the base station, so hears no less
        assert alike.any()
        assert (power[alike] >= law.amplitude[index][alike] ** 2 / antennas * (1 - 1e-9)).all()
