"""Combiner methods side by side on the same seeded channels."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from airfl.catalogue import FORMER_COMBINERS, LEAST_EFFORT, MOST_EFFORT, NEEDS_ANTENNAS, no_such
from airfl.channel import open_link
from airfl.config import preset
from airfl.errors import InputError
from airfl.transceiver import COMBINERS, certificate, combiner_named, counting_figure

#: The relaxation's solver takes seconds to a minute per instance: with `all` it gets this many, and only few devices.
SDR_INSTANCES, SDR_DEVICES = 2, 60
#: Channel coefficients of all instances together, 16 bytes each.
MOST_COEFFICIENTS = 200_000_000


@dataclass(frozen=True)
class MethodResult:
    """One method on all instances (``sdr`` on the first few)."""

    norm2: tuple[float, ...] = field(repr=False)
    over_bound: tuple[float, ...] | None = field(repr=False)
    seconds_per_instance: float
    status: str

    @property
    def norm2_median(self) -> float:
        """Median of ‖w‖²; infinite where most instances failed."""
        return float(np.median(self.norm2))

    @property
    def over_bound_median(self) -> float | None:
        """Median of ‖w‖² over the proven bound."""
        return None if self.over_bound is None else float(np.median(self.over_bound))

    @property
    def over_bound_max(self) -> float | None:
        """The worst instance."""
        return None if self.over_bound is None else float(np.max(self.over_bound))


@dataclass(frozen=True)
class CombinerStudy:
    """All methods on the same instances."""

    antennas: int
    active: int
    instances: int
    effort: float
    bounds: tuple[float, ...] | None = field(repr=False)
    counts: tuple[float, ...] = field(repr=False)
    methods: dict[str, MethodResult]

    @property
    def bound_median(self) -> float | None:
        """Median of the proven lower bound on ‖w‖²."""
        return None if self.bounds is None else float(np.median(self.bounds))

    @property
    def count_median(self) -> float:
        """Median of the counting figure: a scale for one combiner, no bound; not a number where it says nothing."""
        return float(np.median(self.counts))

    @property
    def summary(self) -> dict[str, Any]:
        """The object that ``airfl design --json`` prints; null where a method failed or no bound was asked for."""

        def finite(value: float | None) -> float | None:
            return value if value is not None and np.isfinite(value) else None

        return {
            "antennas": self.antennas,
            "active": self.active,
            "effort": self.effort,
            "lower_bound_median": finite(self.bound_median),
            "counting_figure_median": finite(self.count_median),
            "methods": {
                name: {
                    "norm2_median": finite(row.norm2_median),
                    "norm2_over_bound_median": finite(row.over_bound_median),
                    "norm2_over_bound_max": finite(row.over_bound_max),
                    "seconds_per_instance": row.seconds_per_instance,
                    "instances": len(row.norm2),
                    "status": row.status,
                }
                for name, row in self.methods.items()
            },
        }


def seeded_channels(antennas: int, active: int, instances: int, seed: int) -> torch.Tensor:
    """Rayleigh channels with the paper's path loss, new positions for each instance, [instances, K, m]."""
    config = preset("paper").replace(
        {
            "system.num_devices": active,
            "system.num_antennas": antennas,
            "system.participation": 1.0,
            "system.seed": seed,
            "scheme.combiner": "auto",
        }
    )
    return torch.from_numpy(open_link(config, range(instances)).channels([0])[:, 0])


def compare_combiners(
    antennas: int,
    active: int,
    instances: int,
    seed: int,
    method: str = "auto",
    certify: bool = True,
    effort: float = 1.0,
    advance: Callable[[str, int, int], None] = lambda name, done, total: None,
) -> CombinerStudy:
    """Run one method, or all that apply, on ``instances`` seeded channels; ``advance`` hears what comes next."""
    if instances < 1:
        raise InputError(f"`rounds` must be at least 1; got {instances}")
    if antennas < 1 or active < 1:
        raise InputError(f"`antennas` and `active` must be at least 1; got {antennas} and {active}")
    if instances * antennas * active > MOST_COEFFICIENTS:
        raise InputError(
            f"{instances} x {active} x {antennas} channel coefficients are more than fit in memory; lower `rounds`"
        )
    if not LEAST_EFFORT <= effort <= MOST_EFFORT:
        raise InputError(f"`effort` must be between {LEAST_EFFORT:g} and {MOST_EFFORT:g}; got {effort:g}")
    names = _methods(method, antennas, active)
    channels = seeded_channels(antennas, active, instances, seed)
    total = len(names) + int(certify)
    bounds = None
    if certify:
        advance("certificate", 0, total)
        bounds = tuple(certificate(channels).tolist())
    counts = tuple(counting_figure(channels).tolist())
    methods = {}
    for number, name in enumerate(names):
        advance(name, number + int(certify), total)
        few = channels[:SDR_INSTANCES] if name == "sdr" and method == "all" else channels
        solve = combiner_named(name, effort)
        if name != "sdr":
            solve(few[:1])  # libraries wake up outside the clock
        begin = time.perf_counter()
        design = solve(few)
        seconds = (time.perf_counter() - begin) / len(few)
        norm2 = design.norm.square().numpy()
        over = None if bounds is None else tuple((norm2 / np.asarray(bounds[: len(few)])).tolist())
        failed = sum(word != "ok" for word in design.status)
        status = "ok" if not failed else f"{failed} of {len(few)} failed"
        methods[name] = MethodResult(tuple(norm2.tolist()), over, seconds, status)
    return CombinerStudy(antennas, active, instances, effort, bounds, counts, methods)


def _methods(method: str, antennas: int, active: int) -> list[str]:
    if method != "all":
        if method in FORMER_COMBINERS:
            raise InputError(f"there is no combiner `{method}` any more; use `auto`")
        if method not in COMBINERS:
            raise InputError(no_such("combiner", method, (*COMBINERS, "all")))
        if method in NEEDS_ANTENNAS and active > antennas:
            raise InputError(
                f"combiner `{method}` needs as many antennas as devices; got {active} devices and {antennas} antennas "
                "(use `auto`)"
            )
        return [method]
    names = list(COMBINERS)
    if active > antennas:
        names = [name for name in names if name not in NEEDS_ANTENNAS]
    if active > SDR_DEVICES or importlib.util.find_spec("cvxpy") is None:
        names.remove("sdr")
    return names
