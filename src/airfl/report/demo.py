"""The demo: the same idea with 50, 500 and 6,000 devices, one picture, one page."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airfl.config import Config, preset
from airfl.report.page import Story, write_report
from airfl.report.perk_figure import draw_accuracy_against_epsilon
from airfl.runs import Progress, Result, run, save
from airfl.schemes import SCHEMES
from airfl.wording import epsilon_text, percent

#: Devices and the images of each: always the same 60,000 in all.
DEVICES = {50: 1200, 500: 120, 6000: 10}
EPSILONS = (0.5, 1.0, 4.0)
FEW_SCHEMES = ("fedavg", "fedavg-clip", "airfl-mimo", "airfl-dp")


@dataclass(frozen=True)
class Demo:
    """What the demo found.

    Attributes:
        many: 6,000 devices at ε = 1, beside the same without privacy.
        few: the four schemes with 50 devices at the same ε.
        rows: accuracy by devices and ε.
        page: the report.
    """

    many: Result
    few: Result
    rows: tuple[dict[str, Any], ...]
    page: Path

    @property
    def summary(self) -> dict[str, Any]:
        """For machines; null is ε = ∞."""
        rows = [{**row, "epsilon": row["epsilon"] if math.isfinite(row["epsilon"]) else None} for row in self.rows]
        return {"rows": rows, "many": self.many.summary, "few": self.few.summary, "report": str(self.page)}


def run_demo(folder: Path, progress: Callable[[str, Config], Progress]) -> Demo:
    """Run everything and write the report.

    Args:
        progress: given a title and a configuration, who hears about its rounds.
    """
    base = preset("massive-linear")
    many = run(base, progress=progress("6,000 devices", base))
    few_config = base.replace({**_fleet(50), "scheme.names": list(FEW_SCHEMES)})
    few = run(few_config, progress=progress("50 devices", few_config))
    rows = [_row(6000, 1.0, many, "airfl-dp"), _row(6000, math.inf, many, "fedavg-clip")]
    rows += [_row(50, 1.0, few, "airfl-dp"), _row(50, math.inf, few, "fedavg-clip")]
    for devices in DEVICES:
        for epsilon in EPSILONS:
            if epsilon == 1.0 and devices in (50, 6000):
                continue
            config = base.replace({**_fleet(devices), "privacy.epsilon": epsilon, "scheme.names": ["airfl-dp"]})
            rows.append(
                _row(devices, epsilon, run(config, progress=progress(f"{devices:,} devices", config)), "airfl-dp")
            )
    middle = base.replace({**_fleet(500), "scheme.names": ["fedavg-clip"]})
    rows.append(_row(500, math.inf, run(middle, progress=progress("500 devices", middle)), "fedavg-clip"))
    rows.sort(key=lambda row: (row["devices"], row["epsilon"]))
    title = "The same images, the same ε, more devices"
    draw_accuracy_against_epsilon(rows, folder / "figures", "perk", title)
    many = save(many, folder)
    page = write_report(many, folder, _story(rows, few, folder))
    return Demo(many, few, tuple(rows), page)


def _fleet(devices: int) -> dict[str, Any]:
    return {"system.num_devices": devices, "learning.samples_per_device": DEVICES[devices]}


def _row(devices: int, epsilon: float, result: Result, scheme: str) -> dict[str, Any]:
    entry = result.summary["schemes"][scheme]
    return {"devices": devices, "epsilon": epsilon, "accuracy_mean": entry["accuracy_mean"], "trials": entry["trials"]}


def _story(rows: list[dict[str, Any]], few: Result, folder: Path) -> Story:
    found = {(row["devices"], row["epsilon"]): row["accuracy_mean"] for row in rows}
    picture = base64.b64encode((folder / "figures" / "perk.png").read_bytes()).decode()
    costs = {n: 100 * (found[n, math.inf] - found[n, 1.0]) for n in DEVICES}
    table = [
        {
            "title": SCHEMES[name].title,
            "accuracy": percent(entry["accuracy_mean"], entry["accuracy_std"], entry["trials"]),
            "epsilon": epsilon_text(entry["epsilon_by_observer"]["model"]["gaussian"]),
        }
        for name, entry in few.summary["schemes"].items()
    ]
    return Story(
        "More devices make privacy cheap",
        (
            f"ε = 1 costs {costs[50]:.1f} points of accuracy with 50 devices, {costs[500]:.1f} with 500 and "
            f"{costs[6000]:.1f} with 6,000. All have the same 60,000 images between them.",
            "The noise that hides one device does not depend on how many there are, and the sum of their updates grows "
            "with every one.",
        ),
        picture,
        "Test accuracy against ε. The points at the right are without noise.",
        "The four schemes with 50 devices, at the same ε",
        table,
    )
