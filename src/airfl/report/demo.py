"""The demo: the same idea with 50, 500 and 6,000 devices, one picture, one page."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from airfl.config import Config, preset
from airfl.report.page import Story, write_report
from airfl.report.perk_figure import accuracy_against_epsilon
from airfl.runs import Progress, Result, run, write_run
from airfl.runs.manifest import PERK, STORY
from airfl.schemes import scheme_shown
from airfl.wording import epsilon_text, percent, power_text

#: Devices and the images of each: always the same 60,000 in all.
DEVICES = {50: 1200, 500: 120, 6000: 10}
EPSILONS = (0.5, 1.0, 4.0)
#: Of its picture.
TITLE = "The same images, the same ε, more devices"
#: Of the preset `shielded`: a link with the power to hide. The rest of the fleet's configuration stays.
SMALL_CELL = ("cell_radius_m", "min_distance_m", "power_w")
FEW_SCHEMES = ("fedavg", "fedavg-clip", "airfl-mimo", "airfl-dp")


@dataclass(frozen=True)
class Demo:
    """What the demo found.

    Attributes:
        many: 6,000 devices at ε = 1, beside the same without privacy.
        few: the four schemes with 50 devices at the same ε.
        shielded: as many devices as ``many`` in a small cell, with ε = 1 against the base station itself.
        rows: accuracy by devices and ε.
        page: the report.
    """

    many: Result
    few: Result
    shielded: Result
    rows: tuple[dict[str, Any], ...]
    page: Path

    @property
    def shielded_line(self) -> str:
        """What it costs not to trust the base station."""
        most = max(row["devices"] for row in self.rows)
        trusted = next(r["accuracy_mean"] for r in self.rows if (r["devices"], r["epsilon"]) == (most, 1.0))
        return shielded_sentence(self.shielded, trusted)

    @property
    def summary(self) -> dict[str, Any]:
        """For machines; null is ε = ∞."""
        return {
            "rows": _plain(self.rows),
            "many": self.many.summary,
            "few": self.few.summary,
            "shielded": self.shielded.summary,
            "report": str(self.page),
        }


def run_demo(
    folder: Path,
    progress: Callable[[str, Config], Progress],
    base: Config | None = None,
    fleets: Mapping[int, int] = DEVICES,
) -> Demo:
    """Run everything and write the report.

    Args:
        progress: given a title and a configuration, who hears about its rounds.
        base: many devices at ε = 1; default: the preset ``massive-linear``.
        fleets: three numbers of devices and the images of each device.
    """
    start = base or preset("massive-linear")
    least, middle, most = sorted(fleets)

    def result(devices: int, changes: Mapping[str, Any]) -> Result:
        fleet = {"system.num_devices": devices, "learning.samples_per_device": fleets[devices]}
        config = start.replace({**fleet, **changes})
        found = run(config, progress=progress(f"{devices:,} devices", config))
        if any(entry.status == "interrupted" for entry in found.schemes.values()):
            raise KeyboardInterrupt
        return found

    many = result(most, {})
    cell = {f"channel.{key}": getattr(preset("shielded").channel, key) for key in SMALL_CELL}
    shielded = result(most, {**cell, "scheme.names": ["airfl-shielded"]})
    few = result(least, {"scheme.names": list(FEW_SCHEMES)})
    rows = [_row(most, 1.0, many, "airfl-dp"), _row(most, math.inf, many, "fedavg-clip")]
    rows += [_row(least, 1.0, few, "airfl-dp"), _row(least, math.inf, few, "fedavg-clip")]
    # Where the channel's own noise meets ε = 1 it meets all larger ones, with the same noise: it is the same run.
    is_perk = all(perk.is_perk for perk in many.schemes["airfl-dp"].perks)
    for devices in fleets:
        for epsilon in EPSILONS:
            if devices == most and epsilon > 1.0 and is_perk:
                rows.append(_row(devices, epsilon, many, "airfl-dp"))
            elif epsilon != 1.0 or devices == middle:
                found = result(devices, {"privacy.epsilon": epsilon, "scheme.names": ["airfl-dp"]})
                rows.append(_row(devices, epsilon, found, "airfl-dp"))
    rows.append(_row(middle, math.inf, result(middle, {"scheme.names": ["fedavg-clip"]}), "fedavg-clip"))
    rows.sort(key=lambda row: (row["devices"], row["epsilon"]))
    files = accuracy_against_epsilon(rows, TITLE)
    pictures = {name: files[Path(name).suffix[1:]] for name in PERK}
    story = _story(rows, few, shielded)
    many = write_run(many, folder, {**pictures, STORY: json.dumps(asdict(story)).encode()})
    return Demo(many, few, shielded, tuple(rows), write_report(many, folder, story))


def _row(devices: int, epsilon: float, result: Result, scheme: str) -> dict[str, Any]:
    entry = result.summary["schemes"][scheme]
    return {"devices": devices, "epsilon": epsilon, "accuracy_mean": entry["accuracy_mean"], "trials": entry["trials"]}


def _plain(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """For JSON, which has no infinity: null is ε = ∞."""
    return [{**row, "epsilon": row["epsilon"] if math.isfinite(row["epsilon"]) else None} for row in rows]


def shielded_sentence(shielded: Result, trusted: float) -> str:
    """One line on what it costs not to trust the base station."""
    config, entry = shielded.config, shielded.summary["schemes"]["airfl-shielded"]
    epsilon, record = (
        entry["epsilon_by_observer"]["base-station"]["gaussian"],
        shielded.schemes["airfl-shielded"].records,
    )
    power = power_text(max(row.max_power_w for row in record))
    return (
        f"The base station need not be trusted: the same {config.system.num_devices:,} devices in a cell of "
        f"{config.channel.cell_radius_m:g} m reach {percent(entry['accuracy_mean'])} with ε = {epsilon_text(epsilon)} "
        f"against the base station itself ({percent(trusted)} where it is trusted), hidden in noise that the sum does "
        f"not hear, with at most {power}. This rests on a base station that is curious but honest, and on no more than "
        f"{config.system.num_antennas} antennas."
    )


def _story(rows: list[dict[str, Any]], few: Result, shielded: Result) -> Story:
    found = {(row["devices"], row["epsilon"]): row["accuracy_mean"] for row in rows}
    costs = {n: 100 * (found[n, math.inf] - found[n, 1.0]) for n in sorted({row["devices"] for row in rows})}
    least, middle, most = costs
    table = [
        {
            "title": scheme_shown(name).title,
            "accuracy": percent(entry["accuracy_mean"], entry["accuracy_std"], entry["trials"]),
            "epsilon": epsilon_text(entry["epsilon_by_observer"]["model"]["gaussian"]),
        }
        for name, entry in few.summary["schemes"].items()
    ]
    return Story(
        "More devices make privacy cheap",
        (
            f"ε = 1 costs {costs[least]:.1f} points of accuracy with {least:,} devices, {costs[middle]:.1f} with "
            f"{middle:,} and {costs[most]:.1f} with {most:,}. All have the same images between them.",
            "The noise that hides one device does not depend on how many there are, and the sum of their updates grows "
            "with every one.",
            shielded_sentence(shielded, found[most, 1.0]),
        ),
        "Test accuracy against ε. The points at the right are without noise.",
        f"The four schemes with {least:,} devices, at the same ε",
        table,
        _plain(rows),
    )
