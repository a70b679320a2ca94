"""What goes together: every scheme with every axis of a configuration, and all pairs of axes for four schemes.

Each cell is what a small run books, or the sentence that refuses it. `tests/conflicts.json` holds today's; the test
compares. One row for each scheme.

python -m tests.conflicts             # where a table made now differs from the committed one
python -m tests.conflicts --write     # renew it; a commit that does so says why
"""

from __future__ import annotations

import json
import math
import sys
import warnings
from itertools import combinations
from pathlib import Path
from typing import Any

import torch

from airfl.errors import InputError
from airfl.privacy import BudgetError, make_accountant
from airfl.schemes import SCHEMES
from airfl.simulate import open_simulation
from airfl.testing.small import small_config, small_task

TABLE = Path(__file__).with_suffix(".json")

#: Few devices close by with power to spare, so that a cell is refused for what it is and not for what it lacks.
BASE = {
    "system.num_devices": 6,
    "system.num_antennas": 3,
    "system.rounds": 2,
    "system.trials": 1,
    "channel.power_w": 10.0,
    "channel.cell_radius_m": 200.0,
    "channel.min_distance_m": 10.0,
    "privacy.epsilon": 8.0,
    "privacy.delta": 1e-2,
    "privacy.accountant": "auto",
    "scheme.cover_price_db": 1000.0,
    "scheme.mask_degree": 2,
    "scheme.truncation_share": 0.8,
    "scheme.sum_noise_db": 20.0,
}
BLOCKS = {"channel.coherence_hz": 5e6}
SIGNAL = {"scheme.uplink": "signal"}
DOMAIN = {"learning.domain_diameter": 5.0, "privacy.smoothness": 0.5, "learning.learning_rate": 0.01}

#: Ways in which a run can differ from the plainest one.
AXES: dict[str, dict[str, Any]] = {
    "csi-error": {"channel.csi_error": 1e-3},
    "csi-age": {"channel.csi_age_s": 1e-4, "channel.speed_m_s": 3.0},
    "complex": {"channel.symbols": "complex"},
    "blocks": BLOCKS,
    "rotation": {**BLOCKS, "channel.rotation": True},
    "selection": {"scheme.selection": "strongest", "scheme.selection_keep": 0.5},
    "aligned": {"scheme.selection": "aligned", "scheme.selection_keep": 0.5},
    "dropout": {"system.dropout": 0.2},
    "poisson": {"system.sampling": "poisson", "system.participation": 0.67},
    "fixed": {"system.participation": 0.67},
    "columns": {"scheme.combiner_columns": "all"},
    "clipping": {"channel.clipping_db": 6.0, **SIGNAL},
    "adc": {"channel.adc_bits": 10, **SIGNAL},
    "phase-error": {"channel.phase_error_rad": 0.05},
    "timing": {"channel.timing_offset_s": 1e-9, "channel.cyclic_prefix_s": 1e-8, **BLOCKS},
    "interference": {"channel.interference_dbm": -100.0},
    "eavesdropper": {"eavesdropper": {"distance_m": 150.0, "noise_density_dbm_hz": -170.0}},
    "everything": {"privacy.observer": "everything"},
    "colluding": {"privacy.colluding": 0.3},
    "signal": SIGNAL,
    "replace": {"privacy.neighbours": "replace"},
    "sampled": {"privacy.accountant": "sampled"},
    "domain": DOMAIN,
    "convergent": {**DOMAIN, "privacy.accountant": "convergent"},
    "correlated": {"channel.antenna_correlation": 0.5},
}
#: Schemes of which all pairs of axes are looked at: one that inverts, one that hides, two with scalars of their own.
IN_PAIRS = ("airfl-dp", "airfl-shielded", "power-mse", "tci")


def cells(scheme: str) -> dict[str, dict[str, Any]]:
    """The changes of every cell of a scheme, by its axes; pairs that set one key to two values are left out."""
    found = {name: AXES[name] for name in AXES}
    if scheme in IN_PAIRS:
        for first, second in combinations(AXES, 2):
            both = AXES[first].keys() & AXES[second].keys()
            if all(AXES[first][key] == AXES[second][key] for key in both):
                found[f"{first} + {second}"] = {**AXES[first], **AXES[second]}
    return {"": {}, **found}


def outcome(scheme: str, changes: dict[str, Any]) -> str | list[Any]:
    """The sentence that refuses a small run; or its accountant, whether sampling earns credit, and the ε it books."""
    try:
        config = small_config({**BASE, **changes, "scheme.names": [scheme]})
        simulation = open_simulation(config, scheme, small_task(config))
        *_, (state, _) = simulation.rounds()
        simulation.release(state)
    except (InputError, BudgetError) as error:
        return str(error)
    (ledger,) = state.ledgers
    booked: list[Any] = [simulation.schedule.promise.accountant, any(e.hides_participation for e in ledger.events)]
    for observer in ("model", "base-station"):
        for accountant in ("gaussian", "sampled") if observer == "model" else ("gaussian",):
            epsilon = make_accountant(accountant, ledger, config.neighbours, observer).epsilon(config.privacy.delta)
            booked.append(float(f"{epsilon:.6g}") if math.isfinite(epsilon) else None)
    return booked


def row(scheme: str, every: int = 1) -> dict[str, str | list[Any]]:
    """The cells of a scheme; of pairs of axes every so many."""
    pairs = [name for name in cells(scheme) if " + " in name]
    left_out = set(pairs) - set(pairs[::every])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return {name: outcome(scheme, changes) for name, changes in cells(scheme).items() if name not in left_out}


def is_same(now: str | list[Any], then: str | list[Any]) -> bool:
    """Whether two cells agree: sentences by themselves, numbers but for rounding."""
    if isinstance(now, str) or isinstance(then, str) or len(now) != len(then):
        return now == then
    return all(
        math.isclose(a, b, rel_tol=1e-3) if isinstance(a, float) and isinstance(b, float) else a == b
        for a, b in zip(now, then, strict=True)
    )


def differences(scheme: str, then: dict[str, Any], every: int = 1) -> list[str]:
    """Where a scheme's row as it is now is not what it was, a line each; of pairs of axes every so many."""
    now = row(scheme, every)
    return [
        f"{scheme} with {name or 'nothing else'}: was {then.get(name)!r}, is {now.get(name)!r}"
        for name in ({**then, **now} if every == 1 else now)
        if not is_same(now.get(name, ""), then.get(name, ""))
    ]


def main() -> None:
    """Renew the table, or print where it differs."""
    torch.set_num_threads(1)
    if "--write" in sys.argv:
        rows = []
        for scheme in SCHEMES:
            made = [f"{json.dumps(name)}: {json.dumps(cell, ensure_ascii=False)}" for name, cell in row(scheme).items()]
            rows.append(f"{json.dumps(scheme)}: {{\n" + ",\n".join(made) + "\n}")
        TABLE.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")
        return
    then = json.loads(TABLE.read_text(encoding="utf-8"))
    for scheme in SCHEMES:
        print("\n".join(differences(scheme, then.get(scheme, {}))), flush=True)


if __name__ == "__main__":
    main()
