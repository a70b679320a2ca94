"""The demo on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airfl.report.sentences import headline
from airfl.terminal import numbers, print_table
from airfl.wording import epsilon_text, percent, plain_console

if TYPE_CHECKING:
    from airfl.report.demo import Demo


def print_demo(demo: Demo) -> None:
    """Accuracy by devices and ε, and where the page is."""
    found = demo.rows
    epsilons = sorted({row["epsilon"] for row in found})
    rows = []
    for devices in sorted({row["devices"] for row in found}):
        own = {row["epsilon"]: row["accuracy_mean"] for row in found if row["devices"] == devices}
        rows.append([f"{devices:,}", *(percent(own.get(epsilon)) for epsilon in epsilons)])
    hidden = demo.shielded.summary["schemes"]["airfl-shielded"]["accuracy_mean"]
    devices = demo.shielded.config.system.num_devices
    rows.append([f"{devices:,}, base station too", *(percent(hidden) if e == 1.0 else "" for e in epsilons)])
    print_table(
        numbers("devices", *(f"ε = {epsilon_text(epsilon)}" for epsilon in epsilons)),
        rows,
        "test accuracy (δ = 1e-5, one device's contribution set to zero, against anyone who sees the model)",
    )
    console = plain_console()
    for sentence in (*demo.lines, *headline(demo.many)):
        console.print(f"• {sentence}", highlight=False)
    print(f"\nReport: {demo.page.resolve()}")
