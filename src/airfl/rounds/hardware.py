"""What devices' oscillators and amplifiers and the base station's converters do to one round's setting."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch

from airfl.air import Setting
from airfl.air.hardware import HEADROOM, Hardware
from airfl.channel import Link
from airfl.channel.blocks import Place
from airfl.channel.impairments import stretch_of, turns
from airfl.config import Config
from airfl.errors import InputError
from airfl.schemes import Scheme
from airfl.transceiver import served_channels


def check_hardware(config: Config, scheme: Scheme) -> None:
    """Refuse converters where nothing bounds what they hear."""
    channel = config.channel
    if channel.adc_bits is not None and not math.isfinite(scheme.encoder.length(1.0)):
        raise InputError(
            f"scheme `{scheme.name}` does not clip, so no full scale of a converter is beyond all it may hear; leave "
            "out `channel.adc_bits`"
        )


def turned(link: Link, t: int, active: np.ndarray, channels: torch.Tensor, place: Place | None = None) -> torch.Tensor:
    """h_i e^{j(φ_i − 2πfτ_i)}: channels [trials, K, m] of active devices as they are, not as they were looked at."""
    drawn = [turns(link.config, trial, t, place) for trial in link.trials]
    if any(one is None for one in drawn):
        return channels
    spun = np.stack([one for one in drawn if one is not None])
    return channels * served_channels(spun[:, None, :, None], active[:, None])[:, 0]


def equipped(link: Link, setting: Setting) -> Setting:
    """The setting with the limits of amplifiers and the steps of converters; their error is noise that nobody books.

    A device moves Re h_i s_i x_i or its imaginary part at antenna a by |h_ia s_i| min(c, A/|s_i|) at most, and noise
    is not beyond ``HEADROOM`` standard deviations. With full scale F_a ≥ that + half a step no converter is ever at
    its limit, and with subtracted dither its error e is independent of what it hears, uniform over a step Δ_a: the sum
    gets Re(wᴴe) on top, of variance Σ_a |w_a|² Δ_a²/12 per real coordinate. So the released sum is what was booked plus
    independent noise. Without dither, or at its limit, a converter's error tells of all that an antenna hears, and not
    just of the sum: the ε of whoever sees models would be void.
    """
    channel, stretch = link.config.channel, stretch_of(link.config.channel)
    setting = replace(setting, seen={name: stretch * values for name, values in setting.seen.items()})
    amplitude = math.inf
    if channel.clipping_db is not None:
        amplitude = math.sqrt(link.power_limit) * 10.0 ** (channel.clipping_db / 20.0)
        setting = replace(setting, hardware=Hardware(amplitude))
    if channel.adc_bits is None:
        return setting
    spent = setting.tx_scaling.abs()
    paths = setting.channels.abs()
    signal = torch.einsum("tkm,tk->tm", paths, (spent * setting.clip_norm).clamp(max=amplitude))
    noise = HEADROOM * math.sqrt((setting.noise_power + setting.interference_power) / 2.0)
    full_scale = (signal + noise) / (1.0 - 2.0**-channel.adc_bits)
    step = full_scale * 2.0 ** (1 - channel.adc_bits)
    error = (setting.combiner.abs().square() * step.square()).sum(dim=-1) / 12.0
    return replace(
        setting,
        hardware=Hardware(amplitude, channel.adc_bits, step),
        noise_var=setting.noise_var + error,
    )
