"""What a radio makes of a plan, in sentences: power that is left, what it could do instead, blocks, pilots."""

from __future__ import annotations

import math

from airfl.linkplan.answer import Answer
from airfl.linkplan.link import uncovered
from airfl.wording import counted, epsilon_text


def radio_sentences(answer: Answer) -> list[str]:
    """Two of power; of coherence and of channel knowledge where they were asked for."""
    found = answer.feasibility
    if found is None:
        return []
    said = [_transmit(found["transmit"])] if found["transmit"] is not None else []
    if found["instead"] is not None:
        said.append(_instead(answer, found["instead"]))
    if found["coherence"] is not None:
        said.append(_coherence(found["coherence"]))
    if found["channel_knowledge"] is not None:
        said.append(_knowledge(answer, found["channel_knowledge"]))
    return said


#: What an error that so many drops tell is worth.
FEW = {1: ", as its fadings tell, and other places of the devices differ more"} | dict.fromkeys(
    (2, 3), ", which so few tell roughly"
)

#: What few rounds in place of 64 did to μ² of the base station, dB at worst; of other laws 13 dB.
OFF_DB = {"rician": 3}  # over 8 and 16 rounds; the others over 2 to 16


def drawn_sentence(answer: Answer) -> str | None:
    """What was drawn, and why; None: nothing was."""
    if answer.drops is None:
        return None
    why = uncovered(answer.quantities)
    because = "" if why is None else f"The tables of combiners do not cover {why}, so channels were drawn: "
    error = f"μ² has a standard error of {100 * (answer.table_error or 0.0):.1f} %"
    told = FEW.get(answer.drops, "")
    said = f"{because}{'f' if because else 'F'}rom {counted(answer.drops, 'drop')} {error}{told}; --drops draws more."
    if answer.rounds_followed is None:
        return said
    return (
        f"{said} The base station's ε follows devices over {counted(answer.rounds_followed, 'round')} only, "
        "fewer than luck takes to average out: μ² of single drops was off by up to "
        f"{OFF_DB.get(answer.quantities.fading, 13)} dB where that was checked."
    )


#: Distances, metres, and carriers, Hz, at which a link on the ground may be in one of 3GPP's cities.
CITY_M, CITY_HZ = (10.0, 5000.0), (0.5e9, 100e9)


def flattered_sentence(answer: Answer) -> str | None:
    """A word on free space and Rayleigh fading where a city is as likely (experiments/results/channels.csv)."""
    q = answer.quantities
    plain = q.fading == "rayleigh" and q.layout == "disk" and q.path_loss in (None, "free-space")
    if not plain or q.path_loss_exponent is not None or q.shadowing_db or q.distance_m is None or q.snr_db is not None:
        return None
    if not (CITY_M[0] <= q.distance_m <= CITY_M[1] and CITY_HZ[0] <= q.carrier_hz <= CITY_HZ[1]):
        return None
    return (
        "Free space flatters a link on the ground: in 200 m cells of 3GPP the same devices took 52 to 57 dB more "
        "power, in 50 m halls and offices 2 to 25 dB. --fading 3gpp-umi and the like draw them."
    )


def interference_sentence(answer: Answer) -> str | None:
    """By how much interference disturbs; None: there is none."""
    worse = answer.quantities.disturbance
    if worse == 1.0:
        return None
    return (
        f"Interference makes what disturbs the update {10.0 * math.log10(worse):.1f} dB stronger than the noise. It is "
        "never counted as privacy."
    )


def _transmit(power: dict[str, float]) -> str:
    text = (
        f"Transmit power: {power['power_dbm']:.1f} dBm for the device that needs most, "
        f"{power['mean_power_dbm']:.1f} dBm on average."
    )
    if power["is_sendable"]:
        return text
    return (
        f"{text} Few radios go that low: a 5G device has to reach "
        f"{power['minimum_output_dbm']:.0f} dBm, and need not go below."
    )


def _instead(answer: Answer, instead: dict[str, float | None]) -> str:
    """One sentence: reach, antennas, cover."""
    parts = []
    far, single = instead["distance_m"], instead["margin_db_with_one_antenna"]
    if far is not None:
        parts.append(f"reach {_metres(far)} at the same ε")
    parts.append(f"be cover {instead['cover_db']:.1f} dB above the update (see --observer base-station)")
    text = f"The {answer.backoff_db:.1f} dB that are held back could instead {' or '.join(parts)}."
    if single is None:
        return text
    if single < 0.0:
        return f"{text} Fewer antennas do not make it a perk: one antenna is still {-single:.1f} dB too good."
    return f"{text} Fewer antennas do too: with one there are {single:.1f} dB to spare."


def _metres(value: float) -> str:
    return f"{value / 1000:,.4g} km" if value >= 1000 else f"{value:.3g} m"


def _coherence(found: dict[str, float | None]) -> str:
    parts = []
    time, width = found["coherence_time_s"], found["coherence_bandwidth_hz"]
    over, across = found["airtime_over_coherence_time"], found["bandwidth_over_coherence_bandwidth"]
    if time is not None:
        ratio = "" if over is None else f", and a round takes {over:.3g} times that"
        parts.append(f"channels stand still for {_short(time, 's')}{ratio}")
    if width is not None:
        ratio = "" if across is None else f", and the band is {across:.3g} times as wide"
        parts.append(f"they are flat over {_short(width, 'Hz')}{ratio}")
    text = "; ".join(parts) if parts else "nothing moves"
    blocks = found["blocks"]
    if blocks is None:
        return f"{text[0].upper()}{text[1:]}."
    if blocks == 1:
        return f"{text[0].upper()}{text[1:]}: one block, as the plan assumes."
    return (
        f"{text[0].upper()}{text[1:]}: {blocks:,.0f} blocks of time and frequency, where the plan assumes one. Each "
        "would need a combiner and pilots of its own."
    )


def _knowledge(answer: Answer, found: dict[str, float | None]) -> str:
    tau, each, share = found["csi_error"], found["pilots_per_device"] or 0, found["pilot_share"]
    on_air = found["pilot_airtime_s"]
    time = "" if on_air is None else f", {_short(on_air, 's')} on air"
    part = "" if share is None else f", {100 * share:.2g} % of a round"
    text = (
        f"Channel estimates with an error of {tau:g} take {counted(int(each), 'pilot')} a device at full power, "
        f"{found['pilot_symbols']:,.0f} in all{time}{part}."
    )
    if found["extra_noise_db"] is None:
        return f"{text} What that error costs in ε is proven for Rayleigh fading alone."
    return (
        f"{text} An update may then arrive {found['gain_bound']:.3g} times too large: free ε is about "
        f"{epsilon_text(found['epsilon'])}, and the target takes about {found['extra_noise_db']:.1f} dB more noise."
    )


def _short(value: float, unit: str) -> str:
    for scale, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ")):
        if value >= scale and not (unit == "s" and scale > 1.0):
            return f"{value / scale:.3g} {prefix}{unit}"
    return f"{value:.2g} {unit}"
