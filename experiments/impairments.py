"""What goes wrong on air, one effect after the other on a ladder, and all of them together.

    python -m experiments.impairments --out impairments        # goes on where it was stopped

Settings: `paper` is the paper's link (45 of 50 devices, 100 antennas, 50 rounds) with softmax regression, d = 7,850,
and ε = 112.9, which is what the published budget comes to; `massive` is the preset `massive-linear` (6,000 devices, 16
antennas, ε = 1). A round is one block, or ten of a tapped delay line (100 ns over 20 MHz), or one and ten of UMi in a
cell of 200 m (of `massive` four rounds of links alone). `airfl-mimo` has the noise that the link leaves, `airfl-dp`
keeps the budget; of `massive`, where both are nearly the same, only `airfl-dp` is run.

Writes impairments.csv (one row per setting, cut, effect, strength and scheme) and impairments.json (provenance).
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

import airfl
from airfl.channel.blocks import grid_of
from airfl.channel.noise import dbm_of_power
from airfl.config import Config
from airfl.devices import load_samples, open_task
from airfl.privacy import gaussian_epsilon, reach
from airfl.rounds import arrange
from airfl.runs.store import write_csv
from airfl.schemes import SCHEMES as AIRFL
from airfl.simulate import Simulation, open_simulation
from airfl.transceiver import Radio, open_radio

DIM = 7_850
SCHEMES = {"paper": ("airfl-mimo", "airfl-dp"), "massive": ("airfl-dp",)}
BASES: dict[str, dict[str, Any]] = {
    "paper": {
        "learning.model": "softmax", "learning.local_steps": 20, "learning.local_epochs": None,
        "learning.learning_rate": 0.03, "privacy.epsilon_tilde": None, "privacy.epsilon": 112.9,
        "privacy.accountant": "gaussian", "system.trials": 2,
    },
    "massive": {"system.trials": 1, "engine.eval_every": 1000},
}  # fmt: skip
CITY = {
    "channel.fading": "3gpp-umi", "channel.cell_radius_m": 200.0, "channel.min_distance_m": 10.0,
    "channel.power_dbm": 23.0,
}  # fmt: skip
CUTS: dict[str, dict[str, Any]] = {
    "one block": {},
    "ten blocks": {"channel.delay_spread_s": 100e-9},
    "UMi, one block": CITY,
    "UMi, ten blocks": {**CITY, "channel.coherence_hz": 2e6},
}
#: Rounds of which only the link is looked at, and no device is trained: 40 of ten blocks would take half an hour.
SHORT = {("massive", "UMi, one block"): 4, ("massive", "UMi, ten blocks"): 4}
#: Walking pace; a channel is known as it was some time before.
WALK = {"channel.speed_m_s": 1.5}
#: f_D · age of channel knowledge.
AGES = (0.005, 0.01, 0.02, 0.05)


def age_s(turns: float) -> float:
    """How old channels are when the Doppler shift has turned them so often, at walking pace and 2.4 GHz."""
    return turns * 299_792_458.0 / 2.4e9 / 1.5


def timing(rms: float) -> dict[str, Any]:
    return {"channel.timing_offset_s": rms, "channel.cyclic_prefix_s": 1e-6}


SIGNAL = {"scheme.uplink": "signal"}
LADDERS: dict[str, tuple[str, tuple[tuple[float, dict[str, Any]], ...]]] = {
    "phase error": ("rad", tuple((x, {"channel.phase_error_rad": x}) for x in (0.05, 0.1, 0.2, 0.4, 0.8))),
    "timing offset": ("ns", tuple((1e9 * x, timing(x)) for x in (10e-9, 20e-9, 50e-9, 100e-9))),
    "old channels": ("turns", tuple((x, {**WALK, "channel.csi_age_s": age_s(x)}) for x in AGES)),
    "clipping": ("dB", tuple((x, {**SIGNAL, "channel.clipping_db": x}) for x in (9.0, 6.0, 3.0, 1.0, 0.0))),
    "conversion": ("bits", tuple((x, {**SIGNAL, "channel.adc_bits": int(x)}) for x in (12.0, 10.0, 8.0, 6.0, 4.0))),
}
#: Realistic: oscillators of a phone, timing advance of 50 ns, pilots 1 ms old at walking pace, 12-bit converters.
TOGETHER: dict[str, dict[str, Any]] = {
    "one block": {
        "channel.phase_error_rad": 0.1, **WALK, "channel.csi_age_s": 1e-3, **SIGNAL, "channel.clipping_db": 6.0,
        "channel.adc_bits": 12,
    },
    "ten blocks": {
        "channel.phase_error_rad": 0.1, **timing(50e-9), **WALK, "channel.csi_age_s": 1e-3, **SIGNAL,
        "channel.adc_bits": 12,
    },
    # The gain bound of old channels is proven for uncorrelated Rayleigh fading alone.
    "UMi, ten blocks": {"channel.phase_error_rad": 0.1, **timing(50e-9), **SIGNAL, "channel.adc_bits": 12},
}  # fmt: skip
COLUMNS = (
    "setting", "cut", "effect", "strength", "unit", "scheme", "blocks", "symbols", "airtime_ms", "least_db",
    "gain_bound", "noise_std", "free_epsilon", "threshold_dbm", "epsilon", "misalignment", "accuracy", "accuracy_std",
    "trials", "seconds",
)  # fmt: skip


def points() -> Iterator[tuple[str, str, str, float, str, dict[str, Any]]]:
    """Setting, cut, effect, strength, its unit, and what it changes."""
    for setting in BASES:
        for effect, (unit, steps) in LADDERS.items():
            # Bands turn against each other; an amplifier's limit is that of one carrier.
            cut = "ten blocks" if effect == "timing offset" else "one block"
            # Ten blocks of thousands of devices, or all their symbols, take minutes each.
            long = setting == "massive" and effect in ("timing offset", "clipping", "conversion")
            for strength, changes in steps[-2:-1] if long else steps:
                yield setting, cut, effect, strength, unit, changes
        for cut in CUTS:
            yield setting, cut, "none", 0.0, "", {}
            if "UMi" not in cut and (setting, cut) != ("massive", "ten blocks"):
                yield setting, cut, "complex symbols", 1.0, "", {"channel.symbols": "complex"}
            if cut in TOGETHER and (setting, cut) != ("massive", "UMi, ten blocks"):
                yield setting, cut, "together", 1.0, "", TOGETHER[cut]


def configuration(setting: str, cut: str, changes: dict[str, Any]) -> Config:
    base = airfl.preset("paper" if setting == "paper" else "massive-linear").replace(BASES[setting])
    fixed = {"scheme.names": list(SCHEMES[setting]), "scheme.combiner": "auto", "engine.device": "cpu"}
    return base.replace({**fixed, **CUTS[cut], **changes})


@cache
def radio_of(setting: str, cut: str) -> Radio:
    """The link that all effects share that leave alone what is known of channels."""
    config = configuration(setting, cut, {})
    return open_radio(config, range(config.system.trials))


def free_epsilon(simulation: Simulation) -> float:
    """The exact ε of the noise that the link leaves by itself, with what gain bounds take; mean over trials."""
    schedule, config = simulation.schedule, simulation.config
    told = (reach(config.neighbours) * schedule.clip_norm * schedule.gain_bound / schedule.minimum).square().sum(dim=1)
    mu = (told / (schedule.link.noise_power / 2.0)).sqrt().tolist()
    return float(np.mean([gaussian_epsilon(config.privacy.delta, one) for one in mu]))


def rows_of(setting: str, cut: str, effect: str, strength: float, unit: str, changes: dict[str, Any]) -> list[Any]:
    config = configuration(setting, cut, changes)
    if (setting, cut) in SHORT:
        return [link_of(setting, cut, config)]
    trials = range(config.system.trials)
    alike = "channel.csi_age_s" not in changes and config.channel.symbols == "real"
    radio = radio_of(setting, cut).at(config) if alike else open_radio(config, trials)
    task, found = open_task(config, trials, load_samples(config, torch.device("cpu"))), []
    for scheme in SCHEMES[setting]:
        begin = time.time()
        simulation = open_simulation(config, scheme, task, radio)
        schedule, grid = simulation.schedule, grid_of(config, DIM)
        records = [record for _, records in simulation.rounds() for record in records]
        last = np.array([record.accuracy for record in records if record.round == config.system.rounds])
        # The promise is kept, and the perk is the same, whatever the scheme: `airfl-dp` has both.
        perks = [perk.margin_db for perk in schedule.perks()]
        threshold = float(np.mean(perks)) + dbm_of_power(schedule.link.power_limit) if perks else math.nan
        found.append({
            "setting": setting, "cut": cut, "effect": effect, "strength": strength, "unit": unit, "scheme": scheme,
            "blocks": grid.count, "symbols": grid.symbols,
            "airtime_ms": round(1e3 * grid.symbols / config.channel.bandwidth_hz, 4),
            "least_db": round(float(10.0 * schedule.minimum.square().mean().log10()), 3),
            "gain_bound": round(float(schedule.gain_bound.mean()), 4),
            "noise_std": float(f"{float(schedule.noise_var.mean()) ** 0.5:.4g}"),
            "free_epsilon": float(f"{free_epsilon(simulation):.4g}"),
            "threshold_dbm": "" if math.isnan(threshold) else round(threshold, 2),
            "epsilon": float(f"{max(record.epsilon for record in records):.5g}"),
            "misalignment": float(f"{np.mean([record.misalignment for record in records]):.4g}"),
            "accuracy": round(float(last.mean()), 5),
            "accuracy_std": round(float(last.std(ddof=1)), 5) if len(last) > 1 else "",
            "trials": len(last), "seconds": round(time.time() - begin, 1),
        })  # fmt: skip
    return found


def link_of(setting: str, cut: str, config: Config) -> dict[str, Any]:
    """The link of a few rounds, and what as many as the setting has would tell: μ² grows with their number."""
    begin, rounds = time.time(), SHORT[setting, cut]
    more = config.system.rounds / rounds
    few = config.replace({"system.rounds": rounds})
    schedule, grid = arrange(few, AIRFL[SCHEMES[setting][-1]], open_radio(few, [0]), DIM), grid_of(config, DIM)
    told = (reach(config.neighbours) * schedule.clip_norm / schedule.minimum).square().sum(dim=1)
    mu2 = more * told / (schedule.link.noise_power / 2.0)
    threshold = schedule.perks()[0].margin_db + dbm_of_power(schedule.link.power_limit) - 10.0 * math.log10(more)
    return {
        "setting": setting, "cut": cut, "effect": "none", "strength": 0.0, "scheme": SCHEMES[setting][-1],
        "blocks": grid.count, "symbols": grid.symbols,
        "airtime_ms": round(1e3 * grid.symbols / config.channel.bandwidth_hz, 4),
        "least_db": round(float(10.0 * schedule.minimum.square().mean().log10()), 3), "gain_bound": 1.0,
        "free_epsilon": float(f"{gaussian_epsilon(config.privacy.delta, float(mu2[0].sqrt())):.4g}"),
        "threshold_dbm": round(threshold, 2), "trials": 1, "seconds": round(time.time() - begin, 1),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--settings", nargs="+", choices=list(BASES), default=list(BASES))
    parser.add_argument("--cuts", nargs="+", choices=list(CUTS), default=list(CUTS))
    parser.add_argument("--effects", nargs="+", choices=["none", "complex symbols", "together", *LADDERS])
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    table, rows = arguments.out / "impairments.csv", {}
    if table.is_file():
        with table.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                rows[row["setting"], row["cut"], row["effect"], float(row["strength"]), row["scheme"]] = dict(row)
    for setting, cut, effect, strength, unit, changes in points():
        wanted = setting in arguments.settings and cut in arguments.cuts
        wanted = wanted and effect in (arguments.effects or [effect])
        if not wanted or (setting, cut, effect, strength, SCHEMES[setting][-1]) in rows:
            continue
        for row in rows_of(setting, cut, effect, strength, unit, changes):
            rows[setting, cut, effect, strength, row["scheme"]] = row
            print(*row.values(), flush=True)
        write_csv(table, [{name: one.get(name, "") for name in COLUMNS} for one in rows.values()])
    note = {"command": "python -m experiments.impairments", "airfl": airfl.__version__, "torch": torch.__version__}
    (arguments.out / "impairments.json").write_text(json.dumps(note, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
