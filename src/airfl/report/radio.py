"""The radio link in plain words: who draws the channels, where devices are, and the budget in dBm and dB."""

from __future__ import annotations

import math

from airfl.catalogue import SITES, is_import_path
from airfl.channel.blocks import grid_of, symbols_of
from airfl.channel.budget import link_budget
from airfl.channel.noise import dbm_of_power
from airfl.config import Channel, Config
from airfl.wording import number, power_text, scaled_text

#: What the laws that Sionna draws are called, and what of the geometry is theirs.
PLACES = {
    "3gpp-umi": "an urban microcell (UMi)",
    "3gpp-uma": "an urban macrocell (UMa)",
    "3gpp-rma": "a rural macrocell (RMa)",
    "3gpp-inh": "an office (InH)",
    "3gpp-inf": "a factory hall (InF)",
}


def radio_sentences(config: Config) -> list[str]:
    """What the channels of a run over the air are, as far as a reader may wonder."""
    channel = config.channel
    said = [*law_sentences(config), budget_sentence(config)]
    if channel.interference_dbm is not None:
        budget = link_budget(config)
        more = 10.0 * math.log10(1.0 + budget.interference_w / budget.noise_w)
        said.append(
            f"Interference of {number(channel.interference_dbm)} dBm at every antenna makes the noise in the sum "
            f"{more:.1f} dB larger; none of it counts as privacy."
        )
    said += impairment_sentences(channel)
    return [sentence for sentence in said if sentence]


def impairment_sentences(channel: Channel) -> list[str]:
    """What goes wrong on air, what it does, and why the promise survives it."""
    said, phase = [], channel.phase_error_rad
    if phase > 0:
        does = "rotates" if channel.symbols == "complex" else "shortens"
        said.append(
            f"Oscillators err by {number(phase)} rad, anew in every round and block: that {does} what each device "
            f"sends, and takes {-100.0 * math.expm1(-0.5 * phase**2):.2g} % of the sum on average. Nothing gets "
            "longer, so ε stays."
        )
    if channel.timing_offset_s > 0:
        said.append(
            f"Devices start {number(channel.timing_offset_s)} s early or late (RMS), inside the cyclic prefix, which "
            "turns bands far from the carrier. Nothing gets longer, so ε stays."
        )
    if channel.csi_age_s > 0:
        off = 100.0 * math.sqrt(channel.estimation_error)
        said.append(
            f"Channels are known as they were {number(channel.csi_age_s)} s before, at "
            f"{number(channel.speed_m_s or 0.0)} m/s off by {off:.2g} % of their amplitude: some devices are heard "
            "louder than they should be, and the proven bound on how much is booked."
        )
    if channel.clipping_db is not None:
        said.append(
            f"Amplifiers limit each symbol to {number(channel.clipping_db)} dB above the mean power limit. What is cut "
            "off makes no contribution longer, so ε stays."
        )
    if channel.adc_bits is not None:
        bits = "1 bit" if channel.adc_bits == 1 else f"{channel.adc_bits} bits"
        said.append(
            f"Converters of {bits} at every antenna, with subtracted dither and a full scale beyond all they can hear: "
            "their error is independent noise in the sum, and none of it counts as privacy."
        )
    return said


def law_sentences(config: Config) -> list[str]:
    """Who draws the channels, and what of the positions counts, where that is not plain fading in free space."""
    channel, system = config.channel, config.system
    if channel.is_3gpp:
        site = SITES[channel.fading]
        where = f"{channel.cell_radius_m:g} m"
        inside = site.indoor_share if channel.indoor_share is None else channel.indoor_share
        if site.is_sector:
            cars = " and the others in cars" if channel.fading == "3gpp-rma" else ""
            spread = f"in a third of the circle of {where}, {100 * inside:g} % of them indoors{cars}"
        else:
            hall = f" of type {channel.hall}" if channel.fading == "3gpp-inf" else ""
            spread = f"around the base station within {where}{hall}"
        drops = "" if system.num_devices <= 500 else " (correlated within drops of 500)"
        return [
            f"Channels are those of {PLACES[channel.fading]} of 3GPP TR 38.901, drawn by Sionna for positions of "
            f"ours: devices {spread}. Line of sight, walls, shadowing and rays{drops} stay for a trial, phases are new "
            "in every round."
        ]
    if channel.fading in ("tdl", "cdl"):
        turned = "each device's is turned to a direction of its own" if channel.fading == "cdl" else "no directions"
        return [
            f"Channels follow profile {channel.fading.upper()}-{channel.profile} of 3GPP TR 38.901 ({turned}); it "
            "knows no positions, and distances of ours give the path loss."
        ]
    return []


def blocks_sentence(config: Config, dim: int) -> str:
    """How a round of d coordinates is cut, where it is, and what of it is booked."""
    grid = grid_of(config, dim)
    if grid.count == 1 and grid.per_symbol == 1:
        return ""
    airtime = grid.symbols / config.channel.bandwidth_hz
    carries = "two coordinates" if grid.per_symbol == 2 else "one coordinate"
    text = f"A round is {grid.symbols:,} symbols of {carries} each, {scaled_text(airtime, 's')} on air"
    saved = _saved(config, dim) if grid.per_symbol == 2 else ""
    if grid.count == 1:
        return f"{text}.{saved}"
    spread = " A public random rotation spreads every update over all of them." if config.channel.rotation else ""
    return (
        f"{text}, in {grid.count:,} blocks ({grid.bands:,} of frequency, {grid.spans:,} of time) with a channel and a "
        f"combiner each.{spread} The quietest block is what is booked, and what the test for a perk looks at.{saved}"
    )


def _saved(config: Config, dim: int) -> str:
    """What two coordinates a symbol save and cost."""
    real = scaled_text(dim / config.channel.bandwidth_hz, "s")
    cost = 10.0 * math.log10(dim / symbols_of(config.channel, dim))
    return (
        f" Real symbols would take {real}: two coordinates are twice the energy a symbol, so where power is at its "
        f"limit the noise is {cost:.1f} dB larger, and where power is held back anyway it costs nothing."
    )


def budget_sentence(config: Config) -> str:
    """Power, loss, noise and what remains, at the edge of the cell."""
    channel = config.channel
    if channel.fading == "trace" or is_import_path(channel.fading):
        return ""
    budget = link_budget(config)
    edge = "the median without a line of sight" if channel.is_3gpp else _loss_words(channel)
    gains = _gains(channel)
    return (
        f"At most {power_text(budget.power_w)} ({dbm_of_power(budget.power_w):.1f} dBm) a device, "
        f"{-10.0 * math.log10(budget.edge):.1f} dB lost to the edge of the cell ({edge}{gains}), and noise of "
        f"{dbm_of_power(budget.noise_w):.1f} dBm: {10.0 * math.log10(budget.snr):.1f} dB SNR there at every antenna."
    )


def _loss_words(channel: Channel) -> str:
    shadowed = f", shadowing of {channel.shadowing_db:g} dB around it" if channel.shadowing_db else ""
    if channel.loss_model == "log-distance":
        return f"exponent {channel.path_loss_exponent:g}{shadowed}"
    return channel.loss_model.replace("free-space", "free space") + shadowed


def _gains(channel: Channel) -> str:
    both = channel.antenna_gain_dbi + channel.device_gain_dbi
    parts = [f"{both:g} dBi of antennas"] if both else []
    parts += [f"{channel.loss_db:g} dB of other losses"] if channel.loss_db else []
    return "".join(f", {part} in it" for part in parts)
