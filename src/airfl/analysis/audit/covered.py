"""Is what all antennas hear while everybody sends zeros the cover that is booked?

The sum does not show it: cover cancels there. Real and imaginary parts of all antennas have the covariance Σ that
visibilities are computed from; divided by its Cholesky factor they must be independent standard normals, over
repetitions, rounds and symbols. A mask that is missing, shared, too small or used again shows as a direction of too
little or too much variance, or as rounds that are correlated.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from airfl.air import Setting, SignalUplink
from airfl.analysis.audit.antennas import SYMBOLS, at_the_antennas
from airfl.analysis.audit.worlds import Opener, some_of
from airfl.devices import Samples
from airfl.privacy.checks import Check
from airfl.privacy.noise_tests import noise_checks, spectrum_checks
from airfl.randomness import stream
from airfl.simulate import Simulation
from airfl.transceiver import base_station_sight

#: Receptions and their entries wished for, repetitions at least, rounds at most, and channels held at a time.
RECEPTIONS, ENTRIES, FEWEST_ROWS, MOST_ROUNDS, HELD = 1000, 8_000_000, 4, 40, 20_000_000


def check_covered(
    single: Simulation, samples: Samples, first_key: int, opener: Opener
) -> tuple[list[Check], list[str], list[str]]:
    """What the antennas hear of the cover, against what visibilities are computed from.

    Returns:
        The checks, what was tested, and what was not.
    """
    system = single.config.system
    symbols = min(SYMBOLS, single.schedule.dim)
    row = 2 * system.num_antennas * symbols
    most = min(MOST_ROUNDS, max(2, ENTRIES // (FEWEST_ROWS * row)))
    plan = single.schedule
    cut = 1 if plan.blocks is None else plan.blocks.grid.count
    looked = some_of(stream(system.seed, "canaries", 9), system.rounds * cut, most)
    wished = min(RECEPTIONS // len(looked), ENTRIES // (len(looked) * row))
    count = max(FEWEST_ROWS, min(wished, HELD // (system.num_devices * system.num_antennas)))
    keys = range(first_key, first_key + count)
    batch = at_the_antennas(single, opener(single, samples, keys), keys)
    if not isinstance(batch.uplink, SignalUplink):
        return [], [], ["what the antennas hear: this uplink does not show it"]
    z = np.stack([_whitened(batch, batch.uplink, *divmod(number, cut), symbols) for number in looked], axis=1)
    names = [f"antenna {k + 1}, {part} part" for part in ("real", "imaginary") for k in range(system.num_antennas)]
    found = noise_checks(z.reshape(*z.shape[:2], -1), [(name, symbols) for name in names])
    # Every direction over antennas and rounds at once, with symbols for repetitions.
    together = z.transpose(0, 3, 1, 2).reshape(count * symbols, 1, -1)
    found += [replace(check, name="variance over all rounds") for check in spectrum_checks(together)]
    word, total = "rounds" if cut == 1 else "blocks", system.rounds * cut
    said = f"what the antennas hear of the cover: {count} draws of {len(looked)} {word}, {symbols} symbols each"
    left_out = []
    if len(looked) < total:
        left_out.append(f"the cover of {total - len(looked)} of the {total} {word}")
    return [_named(check) for check in found], [said], left_out


def _named(check: Check) -> Check:
    name = check.name.replace("by layer", "by antenna")
    return replace(check, name=f"antennas: {name}", found=f"at the antennas, {check.found}")


def _whitened(batch: Simulation, uplink: SignalUplink, t: int, block: int, symbols: int) -> np.ndarray:
    """What is heard in one block while everybody sends zeros, divided by the root of Σ, [R, 2m, symbols]."""
    setting, copies = batch.schedule.setting(t), batch.schedule.copies
    setting = setting if setting.blocks is None else setting.blocks.scene(block)
    silence = torch.zeros(setting.gains.shape[1], symbols)
    unit = (0.5 * _heard_power(setting)) ** 0.5  # of the noise, lest tiny numbers lose digits
    found: list[np.ndarray] = []
    root = torch.zeros(0)
    for row in range(len(setting.gains)):
        if row % copies == 0:
            root = torch.linalg.cholesky(_covariance(setting, row) / unit**2)
        heard = torch.cat(list(uplink.antennas(row, silence, setting)), dim=1)
        parts = torch.cat([heard.real, heard.imag]) / unit
        found.append(torch.linalg.solve_triangular(root, parts, upper=False).numpy())
    return np.stack(found).astype(np.float32)


def _heard_power(setting: Setting) -> float:
    """σ² + I: all that an antenna hears beside the devices."""
    return setting.noise_power + setting.interference_power


def _covariance(setting: Setting, row: int) -> torch.Tensor:
    """Σ with all of the receiver's noise, what others send and everybody's cover, [2m, 2m]."""
    here = setting.heard[row]
    paths = setting.channels[row][here] * setting.tx_scaling[row][here].unsqueeze(-1)
    everybody = np.ones(len(paths), dtype=bool)
    sight = base_station_sight(
        paths,
        _heard_power(setting),
        setting.edges[row],
        everybody,
        per_symbol=setting.per_symbol,
        circular=setting.cover.circular,
        share=None if setting.cover.share is None else setting.cover.weights(setting.active)[row][here],
    )
    return sight.covariance(torch.tensor(1.0, dtype=torch.float64), setting.cover[row])
