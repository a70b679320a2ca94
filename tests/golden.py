"""Small runs of every preset, scheme and kind of part, and what came out: the same seeds must go on giving the same.

python -m tests.golden             # one hash per run: bits, to compare before and after a change on one machine
python -m tests.golden --write     # renew tests/golden.json; a commit that does so says why
python -m tests.golden --add       # add the runs that it does not have yet
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

import airfl

VALUES = Path(__file__).with_suffix(".json")
ALL = ["fedavg", "fedavg-clip", "airfl-mimo", "airfl-dp", "airfl-dp-online", "airfl-an", "liu2020", "koda2020"]

#: What makes a preset small: few devices, two rounds, images made here.
SMALL = {
    "system.trials": 2,
    "system.num_devices": 10,
    "system.num_antennas": 12,
    "system.rounds": 2,
    "learning.dataset": "tests.golden:images",
    "learning.split": "standard",
    "learning.samples_per_device": 12,
    "learning.local_steps": 2,
    "learning.batch_size": 5,
    "privacy.epsilon": 20.0,
    "privacy.neighbours": "auto",
    "scheme.names": ALL,
    "engine.device": "cpu",
    "engine.precision": "float32",
}
#: A learning rate at which no preset's loss explodes in two rounds.
CALM = 0.005
LINEAR = {**SMALL, "learning.model": "softmax", "system.participation": 0.6, "privacy.accountant": "gaussian"}
DOMAIN = {"learning.domain_diameter": 5.0, "privacy.smoothness": 0.5, "learning.learning_rate": 0.01}
ONLINE = {"scheme.names": ["airfl-dp-online"], "system.rounds": 6, "channel.power_w": 2e-8}
LEFT_OUT = {"learning.samples_per_device": None}
#: A private cell with power for cover: ten devices, three antennas.
SHIELDED = {
    "scheme.names": ["airfl-dp", "airfl-shielded"],
    "scheme.combiner": "auto",
    "system.participation": 1.0,
    "system.num_antennas": 3,
    "channel.power_w": 0.2,
    "channel.cell_radius_m": 200.0,
    "channel.min_distance_m": 10.0,
}
POWER_CONTROL = ["power-mse", "power-gap", "select-mse", "random-orth"]
MASKS = {"scheme.cover": "masks", "scheme.mask_degree": 4}

#: Kinds of parts, as changes of `paper` with softmax regression.
VARIANTS: dict[str, dict[str, Any]] = {
    "signal": {"scheme.uplink": "signal"},
    "poisson": {"system.sampling": "poisson", "privacy.accountant": "sampled"},
    "poisson-signal": {"system.sampling": "poisson", "scheme.uplink": "signal"},
    "sampled": {"privacy.accountant": "sampled", "scheme.combiner_columns": "all"},
    "auto": {"privacy.accountant": "auto", **DOMAIN},
    "convergent": {"privacy.accountant": "convergent", "system.participation": 1.0, **DOMAIN},
    "published": {"privacy.accountant": "paper", **DOMAIN},
    "csi-error": {"channel.csi_error": 0.01, "scheme.names": ALL[:5]},
    "rician": {"channel.fading": "rician", "scheme.uplink": "signal"},
    "correlated": {"channel.antenna_correlation": 0.7, "channel.device_correlation": 0.3},
    "common-distance": {"channel.distance": "common"},
    "strongest": {"scheme.selection": "strongest", "scheme.selection_keep": 0.5, "system.num_devices": 20},
    "greedy": {"scheme.selection": "greedy", "scheme.selection_keep": 0.5, "system.num_devices": 20},
    **{f"online-{name}": {**ONLINE, "scheme.online": name} for name in ("law", "estimate", "predictions")},
    "server": {
        "learning.server_momentum": 0.8,
        "learning.model_average": 0.9,
        "learning.server_schedule": "linear",
        "learning.server_step": 2.0,
    },
    "epochs": {"learning.local_epochs": 2, "learning.drop_last": True, "learning.split": "pooled", **LEFT_OUT},
    "classes": {"learning.partition": "classes", **LEFT_OUT},
    "dirichlet": {"learning.partition": "dirichlet", "learning.local_epochs": 1, **LEFT_OUT},
    "global-loss": {"engine.train_loss": "global", "privacy.estimate_gradient_noise": True},
    "loop": {"engine.backend": "loop", "learning.model": "small-cnn"},
    "batched": {"engine.backend": "batched", "learning.model": "small-cnn"},
    "threads": {"engine.backend": "threads", "learning.model": "small-cnn"},
    "mlp": {"learning.model": "mlp", "engine.backend": "batched"},
    "scattering": {"learning.features": "scattering"},
    "replace": {"privacy.neighbours": "replace", "system.participation": 1.0},
    **{
        f"combiner-{name}": {"scheme.combiner": name, "scheme.names": ["airfl-mimo", "airfl-dp"]}
        for name in ("auto", "zero-forcing", "sdr", "mrc")
    },
    "shielded-quadrature": {**SHIELDED, "scheme.cover": "quadrature"},
    "shielded-masks": {**SHIELDED, **MASKS, "system.num_antennas": 12},
    "shielded-signal": {**SHIELDED, **MASKS, "scheme.uplink": "signal"},
    "shielded-none": {**SHIELDED, "scheme.cover": "none", "privacy.credited_noise": "receiver"},
    "shielded-csi-error": {**SHIELDED, "channel.csi_error": 1e-5, "scheme.uplink": "signal"},
    "dropout": {"system.dropout": 0.2},
    "shielded-dropout": {**SHIELDED, **MASKS, "system.dropout": 0.1, "scheme.uplink": "signal"},
    "colluding": {**SHIELDED, "privacy.colluding": 0.2, "scheme.names": ["airfl-an", "airfl-shielded"]},
    "eavesdropper": {
        **SHIELDED,
        "privacy.observer": "eavesdropper",
        "eavesdropper.position": [30.0, 40.0],
        "eavesdropper.noise_density_dbm_hz": -174.0,
        "eavesdropper.antennas": 2,
    },
    "everything": {**SHIELDED, "privacy.observer": "everything"},
    "truncated": {"scheme.names": ["tci", "tci-memory"], "scheme.combiner": "auto", "system.rounds": 3},
    "truncated-blocks": {
        "scheme.names": ["tci", "tci-memory"],
        "system.num_antennas": 1,
        "system.rounds": 3,
        "system.sampling": "poisson",
        "scheme.combiner": "auto",
        "scheme.truncation_power": "spread",
        "scheme.truncation_share": 0.5,
        "channel.coherence_hz": 5e6,
        "privacy.accountant": "sampled",
    },
    "replacement": {"scheme.names": ["replacement"]},
    "replacement-coins": {
        "scheme.names": ["replacement"],
        "scheme.replacement": "binomial",
        "scheme.replacement_cap": 2,
        "scheme.combiner_columns": "all",
        "scheme.uplink": "signal",
    },
    "zero-sum": {**SHIELDED, "scheme.names": ["zero-sum", "liu2024", "park2023"]},
    "zero-sum-signal": {
        **SHIELDED,
        "scheme.names": ["zero-sum", "liu2024", "park2023"],
        "scheme.uplink": "signal",
        "privacy.colluding": 0.2,
        "scheme.zero_sum_power": 1000.0,
    },
    "one-bit": {"scheme.names": ["one-bit", "one-bit-memory"]},
    "nc-airfl": {
        "scheme.names": ["nc-airfl"],
        "scheme.combiner": "auto",
        "system.num_antennas": 1,
        "channel.power_w": 2e-9,
    },
    "nc-airfl-signal": {
        "scheme.names": ["nc-airfl"],
        "scheme.uplink": "signal",
        "scheme.fresh_fading": False,
        "channel.power_w": 2e-9,
        "channel.coherence_hz": 5e6,
    },
    "one-bit-signal": {"scheme.names": ["one-bit", "one-bit-memory"], "scheme.uplink": "signal"},
    "power-control": {"scheme.names": POWER_CONTROL, "channel.power_w": 3e-8, "scheme.sum_noise_db": 20.0},
    "power-control-blocks": {
        "scheme.names": POWER_CONTROL,
        "channel.power_w": 3e-8,
        "scheme.sum_noise_db": 20.0,
        "channel.coherence_hz": 5e6,
    },
    "gain-feedback": {"scheme.names": ["random-orth"], "scheme.gain_feedback": True, "channel.power_w": 3e-8},
    "adascale": {"scheme.names": ["adascale"], "channel.power_w": 3e-8, "scheme.sum_noise_db": 45.0},
}


def images() -> airfl.Dataset:
    """400 images of ten kinds, 28 × 28: blurred marks in places that go with the class."""
    generator = np.random.Generator(np.random.Philox(key=28))
    labels = generator.integers(0, 10, 400)
    rows, columns = np.mgrid[0:28, 0:28]
    centres = np.stack([4 + 5 * (labels % 5), 8 + 12 * (labels // 5)], axis=1) + generator.normal(0, 1, (400, 2))
    far = (rows - centres[:, :1, None]) ** 2 + (columns - centres[:, 1:, None]) ** 2
    pixels = 2.0 * np.exp(-far / 18.0) - 1.0 + generator.normal(0, 0.1, far.shape)
    return airfl.Dataset(pixels[:, None].astype(np.float32), labels, 320, num_classes=10)


def owned_images() -> airfl.Dataset:
    """The same images, of 14 devices that have 15 to 50 each."""
    made = images()
    generator = np.random.Generator(np.random.Philox(key=14))
    owners = np.sort(generator.choice(14, len(made.labels), p=np.arange(6, 20) / 175))
    return airfl.Dataset.of_devices(made.inputs, made.labels, owners=owners, later=None, num_classes=10)


def configurations() -> dict[str, airfl.Config]:
    """Every golden run by name."""
    presets = {}
    for name in airfl.preset_names():
        own = airfl.preset(name)
        # Two rounds of a run whose loss explodes multiply rounding, which differs between processors, a thousandfold.
        changes: dict[str, Any] = {**SMALL, "learning.learning_rate": min(CALM, own.learning.learning_rate)}
        if own.learning.partition != "iid":
            changes["learning.samples_per_device"] = None
        if own.learning.partition == "devices":
            changes |= {"learning.dataset": "tests.golden:owned_images", "learning.learning_rate": 1e-3}
        if own.learning.split == "pooled":
            changes.update({"learning.split": "pooled", "learning.samples_per_device": None})
        presets[name] = own.replace(changes)
    base = airfl.preset("paper").replace(LINEAR)
    return {**presets, **{name: base.replace(changes) for name, changes in VARIANTS.items()}}


def outcome(config: airfl.Config) -> airfl.Result:
    """One golden run."""
    return airfl.run(config)


def bits(result: airfl.Result) -> str:
    """A hash over models, records and ledgers."""
    digest = hashlib.sha256()
    for name, scheme in result.schemes.items():
        rows = [tuple(record.__dict__.values()) for record in scheme.records]
        events = [ledger.to_mapping()["events"] for ledger in scheme.ledgers]
        digest.update(repr((name, scheme.status, rows, events, scheme.never_heard, scheme.perks)).encode())
        if scheme.models is not None:
            digest.update(scheme.models.numpy().tobytes())
    return digest.hexdigest()[:16]


def values(result: airfl.Result) -> dict[str, Any]:
    """What is compared to a tolerance: how far the models moved, noise, and ε for every observer and accountant."""
    found: dict[str, Any] = {}
    for name, scheme in result.schemes.items():
        summary = result.summary["schemes"][name]
        models = scheme.models
        found[name] = {
            "status": scheme.status,
            "model_norm": None if models is None else float(models.double().norm()),
            "loss": summary["loss_mean"],
            "train_loss": summary["train_loss_mean"],
            "update_norm": float(np.mean([record.update_norm for record in scheme.records])),
            "noise_var": summary["noise_var_mean"],
            "perk_db": [item["margin_db"] for item in summary["perk"] if math.isfinite(item["margin_db"])],
            "epsilon": summary["epsilon_by_observer"],
        }
    return found


def rounded(value: Any) -> Any:
    """Six digits of every number: enough for the tolerance of the test."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def main() -> None:
    """Print a hash for every run, or renew the committed values."""
    torch.set_num_threads(1)
    add = "--add" in sys.argv
    write = add or "--write" in sys.argv
    known = json.loads(VALUES.read_text(encoding="utf-8")) if add else {}
    table = {}
    for name, config in configurations().items():
        if name in known:
            table[name] = known[name]
            continue
        result = outcome(config)
        table[name] = values(result)
        print(f"{bits(result)}  {name}", flush=True)
    if write:
        rows = [f"{json.dumps(name)}: {json.dumps(rounded(entry))}" for name, entry in table.items()]
        VALUES.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
