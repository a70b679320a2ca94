"""What a radio makes of a plan, in sentences: power that is left, what it could do instead, blocks, pilots."""

from __future__ import annotations

import math
from typing import Any

from airfl.linkplan.answer import Answer
from airfl.linkplan.blocks import grid_of
from airfl.linkplan.link import uncovered
from airfl.wording import counted, epsilon_text, scaled_text


def radio_sentences(answer: Answer) -> list[str]:
    """Two of power; of coherence and of channel knowledge where they were asked for."""
    found = answer.feasibility
    if found is None:
        return []
    said = [transmit_sentence(found["transmit"])] if found["transmit"] is not None else []
    if found["instead"] is not None:
        said.append(_instead(answer, found["instead"]))
    if found["symbols"]["kind"] == "complex":
        said.append(_symbols(answer, found["symbols"]))
    if found["coherence"] is not None:
        said.append(_coherence(answer, found["coherence"]))
    if found["channel_knowledge"] is not None:
        said.append(_knowledge(answer, found["channel_knowledge"]))
    if found["impairments"] is not None:
        said += _impairments(found["impairments"])
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


def transmit_sentence(power: dict[str, float]) -> str:
    """What devices send with after the back-off, and whether radios can."""
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


def _coherence(answer: Answer, found: dict[str, float | None]) -> str:
    parts = []
    time, width = found["coherence_time_s"], found["coherence_bandwidth_hz"]
    over, across = found["airtime_over_coherence_time"], found["bandwidth_over_coherence_bandwidth"]
    if time is not None:
        ratio = "" if over is None else f", and a round takes {over:.3g} times that"
        parts.append(f"channels stand still for {_short(time, 's')}{ratio}")
    if width is not None:
        ratio = "" if across is None else f", and the band is {across:.3g} times as wide"
        who = "channels" if time is None else "they"
        parts.append(f"{who} are flat over {_short(width, 'Hz')}{ratio}")
    text = "; ".join(parts) if parts else "nothing moves"
    blocks = found["blocks"]
    if blocks is None:
        return f"{text[0].upper()}{text[1:]}."
    if blocks == 1:
        return f"{text[0].upper()}{text[1:]}: one block, so one combiner for a round."
    text = f"{text[0].upper()}{text[1:]}: {blocks:,.0f} blocks of time and frequency, each with a combiner of its own."
    return f"{text} {_blocks(answer, found)}"


def _blocks(answer: Answer, found: dict[str, float | None]) -> str:
    """What several blocks do, or that it is not counted."""
    quiet, shared, moved = found["quietest_db"], found["shared_power_db"], found["threshold_db"]
    if quiet is None or shared is None or moved is None:
        why = uncovered(answer.quantities) or "this link"
        return (
            f"What they do with {why} is not counted: all numbers here are those of one block, and with several the "
            "quietest counts and power is shared over the round, so free ε is larger and the threshold lower; the "
            "ledger of a run counts them."
        )
    rest = ""
    if answer.backoff_db > 0.0:
        heard = found["heard_db"] or 0.0
        rest = (
            " Power is held back, so all blocks have the same noise."
            if heard < 0.05
            else f" The sum's noise is {heard:.1f} dB above the quietest block's."
        )
    power = "saves nothing" if shared < 0.05 else f"needs {shared:.1f} dB less than power in every block"
    return (
        f"Privacy counts on the quietest, {quiet:.1f} dB below the usual noise, and power over the round {power}: the "
        f"threshold moves by {moved:.1f} dB.{rest}"
    )


def _symbols(answer: Answer, found: dict[str, Any]) -> str:
    """What complex symbols save and cost."""
    noise, power = found["complex_noise_db"], found["complex_power_db"]
    times = found["airtime_complex_s"], found["airtime_real_s"]
    saved = "half the time" if times[0] is None else f"{_time(times[0])} on air instead of {_time(times[1])}"
    text = f"Two coordinates a symbol: a round takes {saved}"
    if noise < 0.05:
        return (
            f"{text}, and costs nothing in noise, since power is held back anyway: {power:.1f} dB less of it are. A "
            "round takes the same energy."
        )
    if answer.is_perk:
        return f"{text}, and at this power its noise is {noise:.1f} dB larger, since a symbol carries twice the energy."
    return (
        f"{text}, and its noise is {noise:.1f} dB larger: a symbol carries twice the energy, and less than that is "
        "held back."
    )


def _time(value: float) -> str:
    return scaled_text(value, "s")


def _impairments(found: dict[str, Any]) -> list[str]:
    """What turns of channels cost, and what is not counted."""
    said = []
    if found["phase_error_rad"] or found["timing_offset_s"]:
        distortion = found["distortion_to_update"]
        more = "" if distortion is None else f" and adds errors of {100.0 * distortion:.2g} % of the averaged update"
        said.append(
            f"What turns on air takes {-found['coherent_gain_db']:.2g} dB of the sum{more}; the predicted cost does "
            "not count it. No contribution gets longer, so ε stays."
        )
    names = {"clipping_db": "clipping", "adc_bits": "conversion"}
    left = [names[name] for name in found["not_counted"]]
    if left:
        said.append(
            f"A plan does not count what {' and '.join(left)} {'take' if len(left) > 1 else 'takes'} of accuracy, "
            "which depends on every symbol of an update; ε stays."
        )
    return said


def _knowledge(answer: Answer, found: dict[str, float | None]) -> str:
    tau, age, error = found["csi_error"], found["csi_age_s"], found["estimation_error"] or 0.0
    said = []
    if tau is not None:
        each, share, on_air = found["pilots_per_device"] or 0, found["pilot_share"], found["pilot_airtime_s"]
        time = "" if on_air is None else f", {_short(on_air, 's')} on air"
        part = "" if share is None else f", {100 * share:.2g} % of a round"
        grid = grid_of(answer.quantities)
        where = " in every block" if grid is not None and grid.count > 1 else ""
        said.append(
            f"Channel estimates with an error of {tau:g} take {counted(int(each), 'pilot')} a device{where} at full "
            f"power, {found['pilot_symbols']:,.0f} in all{time}{part}."
        )
    if age:
        said.append(
            f"Channels that are known as they were {_short(age, 's')} before are off by {error:.3g} of their power."
        )
    if found["extra_noise_db"] is None:
        why = (
            "is proven for Rayleigh fading alone"
            if answer.quantities.fading != "rayleigh"
            else "is not counted with several blocks"
        )
        said.append(f"What that error costs in ε {why}.")
    else:
        said.append(
            f"An update may then arrive {found['gain_bound']:.3g} times too large: free ε is about "
            f"{epsilon_text(found['epsilon'])}, and the target takes about {found['extra_noise_db']:.1f} dB more noise."
        )
    return " ".join(said)


def _short(value: float, unit: str) -> str:
    for scale, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ")):
        if value >= scale and not (unit == "s" and scale > 1.0):
            return f"{value / scale:.3g} {prefix}{unit}"
    return f"{value:.2g} {unit}"
