"""What a radio makes of a plan: how long channels stand still, what knowing them costs, how little power is left.

A round is d symbols long. Channels stand still over about

    T_c = 0.423 λ/v,    B_c = 1/(5 τ_rms),

so a round of bandwidth W is ⌈W/B_c⌉ · ⌈airtime/T_c⌉ blocks, where the planner assumes one. Devices that send N
orthogonal pilots each at full power are known with an error power of τ = 1/(1 + N·SNR) of their channel power (minimum
mean-square error), so N = (1/τ − 1)/SNR at the edge. A wrong estimate stretches what a device adds to the sum by up to

    G = 1 + √(τ log(K·T/p)) · x/√(1 − τ),    x = max_i √Λ_i ‖w‖/|wᴴh_i|,

but for a chance of p (``transceiver.radio``); and combiners for estimates, which are weaker by 1 − τ, are longer by
1/(1 − τ). So μ² gains E[(1 − τ) G²/ρ]/E[1/ρ].
"""

from __future__ import annotations

import math
from typing import Any

from airfl.channel.geometry import SPEED_OF_LIGHT_M_S
from airfl.channel.noise import dbm_of_power
from airfl.config import Channel
from airfl.linkplan.law import Combining, Drawn, combining
from airfl.linkplan.link import farther, uncovered
from airfl.linkplan.quantities import Quantities
from airfl.privacy import gaussian_epsilon

#: Share of λ/v over which a channel stays about what it is (Rappaport, Wireless Communications, 5.40.c).
STANDS_STILL = 0.423
#: The chance over a run that a gain is larger than what is booked for it, as in a configuration.
OUTAGE: float = Channel.model_fields["csi_outage"].default
#: 3GPP TS 38.101-1, Table 6.3.1-1: a device need not be able to send with less than −40 dBm up to 20 MHz, the same
#: per hertz beyond: −39 at 25, −37 at 40, −36 at 50, −34 at 80, −33 dBm at 100 MHz.
MINIMUM_DBM, MINIMUM_HZ, WIDEST_HZ = -40.0, 20e6, 100e6


def minimum_output_dbm(bandwidth_hz: float) -> float:
    """The lowest power that a 5G device has to be able to send with."""
    return MINIMUM_DBM + 10.0 * math.log10(min(max(bandwidth_hz, MINIMUM_HZ), WIDEST_HZ) / MINIMUM_HZ)


def feasibility_of(q: Quantities, law: Combining, mu2: float, target2: float, backoff: float) -> dict[str, Any]:
    """All of it by name; None where a quantity that it takes is not known.

    Args:
        mu2: at full power.
        target2: μ² of the target.
        backoff: what is left of the power to keep it.
    """
    return {
        "transmit": _transmit(q, law, backoff),
        "instead": _instead(q, target2, backoff),
        "coherence": _coherence(q),
        "channel_knowledge": _knowledge(q, law, mu2, target2),
    }


def _transmit(q: Quantities, law: Combining, backoff: float) -> dict[str, Any] | None:
    """Power after the back-off: of the device that needs most, of the average, and what radios go down to."""
    if q.limit_w is None:
        return None
    most = dbm_of_power(q.limit_w * backoff)
    mean, least = most + 10.0 * math.log10(law.mean_power), minimum_output_dbm(q.bandwidth_hz or MINIMUM_HZ)
    return {"power_dbm": most, "mean_power_dbm": mean, "minimum_output_dbm": least, "is_sendable": most >= least}


def _instead(q: Quantities, target2: float, backoff: float) -> dict[str, Any] | None:
    """What the power that is held back could do: reach farther, make up for antennas, be cover.

    Cover that is sent with it has (1 − β)/β times the power of the update itself, c²/d a coordinate.
    """
    if backoff >= 1.0:
        return None
    single = None
    if uncovered(q) is None:
        from airfl.linkplan.answer import squared_mu

        law = combining(q.layout, q.active, 1)
        single = 10.0 * math.log10(target2 / squared_mu(q.with_values({"antennas": 1}), law))
    return {
        "distance_m": None if q.distance_m is None else farther(q, q.distance_m, backoff),
        "margin_db_with_one_antenna": single,
        "cover_db": 10.0 * math.log10((1.0 - backoff) / backoff),
    }


def _coherence(q: Quantities) -> dict[str, Any] | None:
    """How many blocks of time and frequency a round is made of."""
    if q.speed_m_s is None and q.delay_spread_s is None:
        return None
    time = width = None
    if q.speed_m_s:
        time = STANDS_STILL * SPEED_OF_LIGHT_M_S / q.carrier_hz / q.speed_m_s
    if q.delay_spread_s is not None:
        width = 1.0 / (5.0 * q.delay_spread_s)
    rate, band = q.symbols_per_second, q.bandwidth_hz
    airtime = None if rate is None or q.parameters is None else q.parameters / rate
    in_time = _blocks(airtime, time, still=q.speed_m_s is not None)
    across = _blocks(band, width, still=False)
    return {
        "coherence_time_s": time,
        "airtime_over_coherence_time": None if time is None or airtime is None else airtime / time,
        "blocks_in_time": in_time,
        "coherence_bandwidth_hz": width,
        "bandwidth_over_coherence_bandwidth": None if width is None or band is None else band / width,
        "blocks_in_frequency": across,
        "blocks": None if in_time is None and across is None else (in_time or 1) * (across or 1),
    }


def _blocks(whole: float | None, part: float | None, still: bool) -> int | None:
    if part is None:
        return 1 if still else None
    return None if whole is None else max(1, math.ceil(whole / part * (1.0 - 1e-12)))


def _knowledge(q: Quantities, law: Combining, mu2: float, target2: float) -> dict[str, Any] | None:
    """Pilots for a stated error of the estimates, and what that error costs; interference disturbs pilots too."""
    tau = q.csi_error
    if tau is None:
        return None
    each = max(1, math.ceil((1.0 / tau - 1.0) / (q.snr / q.disturbance) * (1.0 - 1e-12)))
    pilots, rate, dim = each * q.active, q.symbols_per_second, q.parameters
    found: dict[str, Any] = {
        "csi_error": tau,
        "pilots_per_device": each,
        "pilot_symbols": pilots,
        "pilot_airtime_s": None if rate is None else pilots / rate,
        "pilot_share": None if dim is None else pilots / (pilots + dim),
        "gain_bound": None,
        "epsilon": None,
        "extra_noise_db": None,
    }
    if q.fading != "rayleigh":  # only there is the bound proven
        return found
    spread = math.sqrt(tau / (1.0 - tau) * math.log(q.active * (q.rounds or 1) / OUTAGE))
    mean, square = _stretch(q, law)
    factor = (1.0 - tau) * (1.0 + 2.0 * spread * mean + spread**2 * square)
    worse = gaussian_epsilon(q.delta, math.sqrt(mu2 * factor))
    return found | {
        "gain_bound": 1.0 + spread * math.sqrt(square),
        "epsilon": worse if math.isfinite(worse) else None,
        "extra_noise_db": max(0.0, 10.0 * math.log10(factor * mu2 / max(target2, mu2))),
    }


def _stretch(q: Quantities, law: Combining) -> tuple[float, float]:
    """E[x/ρ] and E[x²/ρ] over E[1/ρ]; drawn, or about what the tables imply.

    Of unit-power fading |wᴴg_i|²/‖w‖² is at least (r_i/R)²/ρ, and 1/ρ where all are equally far away. On a disk near
    devices may fade deeper: (r/R)² is uniform and what is above it exponential, so that the least of K is t or more
    with probability exp(−ρKt²/2) or so: E[1/t] = √(π/2)·√(ρK), E[1/√t] = Γ(3/4) (ρK/2)^¼.
    """
    if isinstance(law, Drawn):
        return law.stretch, law.stretch2
    mean, square = law.inverse_norm2**-0.5, 1.0 / law.inverse_norm2
    if q.layout == "disk":
        crowd = q.active / law.inverse_norm2
        square = max(square, math.sqrt(0.5 * math.pi * crowd))
        mean = max(mean, math.gamma(0.75) * (0.5 * crowd) ** 0.25)
    return mean, square
