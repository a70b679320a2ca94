"""The demo: the same idea with 50, 500 and 6,000 devices, each tuned for itself, one picture, one page."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from airfl.config import Config, preset
from airfl.devices import Shelf
from airfl.report.page import Story, write_report
from airfl.report.perk_figure import accuracy_against_epsilon
from airfl.runs import Progress, Result, run, write_run
from airfl.runs.manifest import PERK, STORY
from airfl.schemes import scheme_shown
from airfl.toml import parse_toml
from airfl.wording import (
    at_most_text,
    epsilon_text,
    percent,
    power_text,
)

#: Devices and the images of each: always the same 60,000 in all.
DEVICES = {50: 1200, 500: 120, 6000: 10}
EPSILONS = (0.5, 1.0, 4.0)
#: Of its picture.
TITLE = "The same images, the same ε, more devices"
#: What each of them is trained with, by `experiments/demo_tuning.py`.
SETTINGS = Path(__file__).with_name("demo_settings.toml")
#: Of the preset `shielded`: a link with the power to hide. The rest of the fleet's configuration stays.
SMALL_CELL = ("cell_radius_m", "min_distance_m", "power_w")
FEW_SCHEMES = ("fedavg", "fedavg-clip", "airfl-mimo", "airfl-dp")
#: Accuracy of guessing one of ten classes.
CHANCE = 0.1

#: Changes of a configuration, by devices and ε.
Settings = Mapping[tuple[int, float], Mapping[str, Any]]


@dataclass(frozen=True)
class Demo:
    """What the demo found.

    Attributes:
        many: 6,000 devices at ε = 1, beside the same without privacy.
        few: the four schemes with 50 devices at the same ε.
        shielded: as many devices as ``many`` in a small cell, with ε = 1 against the base station itself.
        rows: accuracy by devices and ε.
        settings: what was changed for each of them.
        page: the report.
    """

    many: Result
    few: Result
    shielded: Result
    rows: tuple[dict[str, Any], ...]
    settings: Settings
    page: Path

    @property
    def lines(self) -> list[str]:
        """How to read the table, a sentence each."""
        return [tuning_sentence(self.rows, self.settings), *unlearnt_sentences(self.rows), self.shielded_line]

    @property
    def shielded_line(self) -> str:
        """What it costs not to trust the base station."""
        most = max(row["devices"] for row in self.rows)
        trusted = next(r["accuracy_mean"] for r in self.rows if (r["devices"], r["epsilon"]) == (most, 1.0))
        return shielded_sentence(self.shielded, trusted)

    @property
    def summary(self) -> dict[str, Any]:
        """For machines; null is ε = ∞."""
        settings = [{"devices": n, "epsilon": e, **changes} for (n, e), changes in self.settings.items()]
        return {
            "rows": _plain(self.rows),
            "settings": _plain(settings),
            "many": self.many.summary,
            "few": self.few.summary,
            "shielded": self.shielded.summary,
            "report": str(self.page),
        }


def tuned_settings() -> Settings:
    """What each number of devices is trained with at each ε, found by ``experiments/demo_tuning.py``."""
    found = {}
    for entry in parse_toml(SETTINGS.read_text(encoding="utf-8"))["setting"]:
        own = {key: value for key, value in entry.items() if key not in ("devices", "epsilon", "validation_accuracy")}
        changes = {f"{'system' if key == 'rounds' else 'learning'}.{key}": value for key, value in own.items()}
        found[entry["devices"], float(entry["epsilon"])] = changes
    return found


def run_demo(
    folder: Path,
    progress: Callable[[str, Config], Progress],
    base: Config | None = None,
    fleets: Mapping[int, int] = DEVICES,
    settings: Settings | None = None,
    shelf: Shelf | None = None,
) -> Demo:
    """Run everything and write the report.

    Args:
        shelf: where somebody has begun to read the data.
        progress: given a title and a configuration, who hears about its rounds.
        base: many devices at ε = 1; default: the preset ``massive-linear``.
        fleets: three numbers of devices and the images of each device.
        settings: what to change for each of them; default: ``tuned_settings``, nothing where ``base`` is given.
    """
    start, shelf = base or preset("massive-linear"), shelf or Shelf()
    if settings is None:
        settings = tuned_settings() if base is None else {}
    least, _, most = sorted(fleets)

    def result(devices: int, epsilon: float, schemes: Sequence[str], more: Mapping[str, Any] | None = None) -> Result:
        fleet = {"system.num_devices": devices, "learning.samples_per_device": fleets[devices]}
        budget = {"privacy.epsilon": epsilon} if math.isfinite(epsilon) else {}
        own = settings.get((devices, epsilon), {})
        config = start.replace({**fleet, **own, **budget, **(more or {}), "scheme.names": list(schemes)})
        found = run(config, progress=progress(f"{devices:,} devices", config), shelf=shelf)
        if any(entry.status == "interrupted" for entry in found.schemes.values()):
            raise KeyboardInterrupt
        return found

    many = result(most, 1.0, start.scheme.names)
    cell = {f"channel.{key}": getattr(preset("shielded").channel, key) for key in SMALL_CELL}
    shielded = result(most, 1.0, ["airfl-shielded"], cell)
    few = result(least, 1.0, FEW_SCHEMES)
    at_one = {most: many, least: few}
    rows = []
    for devices in sorted(fleets):
        for epsilon in (*EPSILONS, math.inf):
            scheme = "airfl-dp" if math.isfinite(epsilon) else "fedavg-clip"
            found = at_one.get(devices)
            same = settings.get((devices, epsilon)) == settings.get((devices, 1.0))
            if found is None or not (same and _stands_for(found, epsilon)):
                found = result(devices, epsilon, [scheme])
            rows.append(_row(devices, epsilon, found, scheme))
    files = accuracy_against_epsilon(rows, TITLE)
    pictures = {name: files[Path(name).suffix[1:]] for name in PERK}
    story = _story(rows, few, shielded, settings)
    many = write_run(many, folder, {**pictures, STORY: json.dumps(asdict(story)).encode()})
    return Demo(many, few, shielded, tuple(rows), settings, write_report(many, folder, story))


def _stands_for(at_one: Result, epsilon: float) -> bool:
    """Whether a run at ε = 1 is also the one at another ε, or without noise, with the same settings."""
    if epsilon == 1.0:
        return True
    if not math.isfinite(epsilon):
        return "fedavg-clip" in at_one.schemes
    # Where the channel's own noise meets ε = 1 it meets all larger ones, with the same noise.
    return epsilon > 1.0 and all(perk.is_perk for perk in at_one.schemes["airfl-dp"].perks)


def _row(devices: int, epsilon: float, result: Result, scheme: str) -> dict[str, Any]:
    entry = result.summary["schemes"][scheme]
    return {"devices": devices, "epsilon": epsilon, "accuracy_mean": entry["accuracy_mean"], "trials": entry["trials"]}


def _plain(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For JSON, which has no infinity: null is ε = ∞."""
    return [{**row, "epsilon": row["epsilon"] if math.isfinite(row["epsilon"]) else None} for row in rows]


def is_tuned(rows: Sequence[Mapping[str, Any]], settings: Settings) -> bool:
    """Whether each point has settings of its own."""
    return all((row["devices"], row["epsilon"]) in settings for row in rows)


def tuning_sentence(rows: Sequence[Mapping[str, Any]], settings: Settings) -> str:
    """What the lines were tuned for."""
    if not is_tuned(rows, settings):
        return "The settings are not tuned for each number of devices and ε: a line may do better with its own."
    rounds = max(changes["system.rounds"] for changes in settings.values())
    return (
        "Each point is tuned for its own number of devices and its own ε, on training images held out for that: at "
        f"most {rounds} rounds, and no more work in a round than {max(DEVICES):,} devices have together "
        "(experiments/demo_tuning.py; no ε pays for tuning)."
    )


def unlearnt_sentences(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Which points are hardly better than guessing."""
    return [
        f"With {row['devices']:,} devices and ε = {epsilon_text(row['epsilon'])} next to nothing is learnt: "
        f"{percent(row['accuracy_mean'])}, where guessing has {percent(CHANCE)}."
        for row in rows
        if row["accuracy_mean"] is None or row["accuracy_mean"] < 2 * CHANCE
    ]


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
        f"{config.channel.cell_radius_m:g} m reach {percent(entry['accuracy_mean'])} with ε = {at_most_text(epsilon)} "
        f"against the base station itself ({percent(trusted)} where it is trusted), hidden in noise that the sum does "
        f"not hear, with at most {power}. This rests on a base station that is curious but honest, and on no more than "
        f"{config.system.num_antennas} antennas."
    )


def _points(cost: float) -> str:
    """A loss of accuracy, in points."""
    return f"{cost:.1f}" if cost >= 0.05 else "nothing"


def _story(rows: list[dict[str, Any]], few: Result, shielded: Result, settings: Settings) -> Story:
    found = {(row["devices"], row["epsilon"]): row["accuracy_mean"] for row in rows}
    shown = {cell: round(100 * accuracy, 1) for cell, accuracy in found.items()}  # what tables print: costs agree
    costs = {n: shown[n, math.inf] - shown[n, 1.0] for n in sorted({row["devices"] for row in rows})}
    least, middle, most = costs
    table = [
        {
            "title": scheme_shown(name).title,
            "accuracy": percent(entry["accuracy_mean"], entry["accuracy_std"], entry["trials"]),
            "epsilon": at_most_text(entry["epsilon_by_observer"]["model"]["gaussian"]),
        }
        for name, entry in few.summary["schemes"].items()
    ]
    tuned = is_tuned(rows, settings)
    return Story(
        "More devices make privacy cheap",
        (
            f"ε = 1 costs {_points(costs[least])} points of accuracy with {least:,} devices, {_points(costs[middle])} "
            f"with {middle:,} and {_points(costs[most])} with {most:,}. All have the same images between them.",
            "The noise that hides one device does not depend on how many there are, and the sum of their updates grows "
            "with every one.",
            tuning_sentence(rows, settings),
            *unlearnt_sentences(rows),
            shielded_sentence(shielded, found[most, 1.0]),
        ),
        "Test accuracy against ε, one trial. The points at the right are without noise. "
        + ("Each point is tuned for itself." if tuned else "All points have the same settings."),
        f"The four schemes with {least:,} devices, "
        + ("with the settings tuned for ε = 1" if tuned else "at the same ε"),
        table,
        _plain(rows),
    )
