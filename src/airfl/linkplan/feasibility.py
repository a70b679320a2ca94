"""What a radio makes of a plan: how long channels stand still, what knowing them costs, how little power is left.

A round is a symbol for each of d coordinates long, or half of that where symbols are complex. Channels stand still
over about

    T_c = 0.423 λ/v,    B_c = 1/(5 τ_rms),

so a round of bandwidth W is ⌈W/B_c⌉ · ⌈airtime/T_c⌉ blocks (``blocks`` says what they do). Devices that send N
orthogonal pilots each at full power are known with an error power of τ = 1/(1 + N·SNR) of their channel power (minimum
mean-square error), so N = (1/τ − 1)/SNR at the edge. A wrong estimate stretches what a device adds to the sum by up to

    G = 1 + √(τ log(K·T/p)) · x/√(1 − τ),    x = max_i √Λ_i ‖w‖/|wᴴh_i|,

but for a chance of p (``transceiver.radio``); and combiners for estimates, which are weaker by 1 − τ, are longer by
1/(1 − τ). So μ² gains E[(1 − τ) G²/ρ]/E[1/ρ].
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from airfl.channel.blocks import coherence_bandwidth_hz, coherence_time_s
from airfl.channel.noise import dbm_of_power
from airfl.config import Channel
from airfl.linkplan.blocks import grid_of, is_counted, several
from airfl.linkplan.impaired import impairments_of
from airfl.linkplan.law import Combining, Drawn, combining
from airfl.linkplan.link import farther, uncovered, wide_channel_of
from airfl.linkplan.quantities import Quantities
from airfl.privacy import gaussian_epsilon

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
        "symbols": _symbols(q, law, target2),
        "coherence": _coherence(q, backoff),
        "channel_knowledge": _knowledge(q, law, mu2, target2),
        "impairments": impairments_of(q),
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


def _symbols(q: Quantities, law: Combining, target2: float) -> dict[str, Any]:
    """What a symbol carries, time on air either way, and what two coordinates a symbol cost over one.

    At equal power the noise is that much larger; where power is held back anyway devices send with that much more.
    """
    from airfl.linkplan.answer import squared_mu

    either = {kind: replace(q, symbols=kind) for kind in ("real", "complex")}
    rate = q.symbols_per_second
    count = {kind: one.symbols_a_round for kind, one in either.items()}
    time = {kind: None if rate is None or found is None else found / rate for kind, found in count.items()}
    plain = squared_mu(either["real"], law)
    wide = squared_mu(either["complex"], law)
    return {
        "kind": q.symbols,
        "per_round": count[q.symbols],
        "airtime_real_s": time["real"],
        "airtime_complex_s": time["complex"],
        "complex_power_db": 10.0 * math.log10(plain / wide),
        "complex_noise_db": 10.0 * math.log10(min(plain, target2) / min(wide, target2)),
    }


def _coherence(q: Quantities, backoff: float) -> dict[str, Any] | None:
    """How many blocks of time and frequency a round is made of, and what they do to noise and power."""
    if all(value is None for value in (q.speed_m_s, q.delay_spread_s, q.coherence_hz, q.coherence_s)):
        return None
    channel, grid = wide_channel_of(q), grid_of(q)
    time, width = coherence_time_s(channel), coherence_bandwidth_hz(channel)
    rate, band, symbols = q.symbols_per_second, q.bandwidth_hz, q.symbols_a_round
    airtime = None if rate is None or symbols is None else symbols / rate
    still = q.speed_m_s is not None or q.coherence_s is not None
    in_time = None if grid is None or not still or (time is not None and airtime is None) else grid.spans
    across = None if grid is None or width is None or band is None else grid.bands
    found: dict[str, Any] = {
        "coherence_time_s": time,
        "airtime_over_coherence_time": None if time is None or airtime is None else airtime / time,
        "blocks_in_time": in_time,
        "coherence_bandwidth_hz": width,
        "bandwidth_over_coherence_bandwidth": None if width is None or band is None else band / width,
        "blocks_in_frequency": across,
        "blocks": None if in_time is None and across is None else (in_time or 1) * (across or 1),
        "quietest_db": None,
        "shared_power_db": None,
        "threshold_db": None,
        "heard_db": None,
    }
    if not is_counted(q):
        return found
    blocks = several(q)
    return found | {
        "quietest_db": _decibels(blocks.quietest),
        "shared_power_db": _decibels(1.0 / blocks.load),
        "threshold_db": _decibels(1.0 / blocks.gain),
        "heard_db": _decibels(blocks.heard(backoff)),
    }


def _decibels(ratio: float) -> float:
    return 10.0 * math.log10(ratio) + 0.0  # no −0


def _knowledge(q: Quantities, law: Combining, mu2: float, target2: float) -> dict[str, Any] | None:
    """Pilots for a stated error of the estimates, and what that error costs; interference disturbs pilots too."""
    if q.csi_error is None and not q.csi_age_s:
        return None
    tau, grid = wide_channel_of(q).estimation_error, grid_of(q)
    found: dict[str, Any] = {
        "csi_error": q.csi_error,
        "csi_age_s": q.csi_age_s,
        "estimation_error": tau if q.fading == "rayleigh" else q.csi_error,
        **_pilots(q, 1 if grid is None else grid.count),
        "gain_bound": None,
        "epsilon": None,
        "extra_noise_db": None,
    }
    # Only there is the bound proven; of several blocks the worst is not estimated here.
    if q.fading != "rayleigh" or grid is None or grid.count > 1:
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


def _pilots(q: Quantities, blocks: int) -> dict[str, Any]:
    """What a stated error takes; all of it None where only the age of channels is known."""
    names = ("pilots_per_device", "pilot_symbols", "pilot_airtime_s", "pilot_share")
    if q.csi_error is None:
        return dict.fromkeys(names)
    each = max(1, math.ceil((1.0 / q.csi_error - 1.0) / (q.snr / q.disturbance) * (1.0 - 1e-12)))
    pilots, rate, symbols = each * q.active * blocks, q.symbols_per_second, q.symbols_a_round
    time = None if rate is None else pilots / rate
    return dict(zip(names, (each, pilots, time, None if symbols is None else pilots / (pilots + symbols)), strict=True))


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
