"""Time and memory of channels that Sionna draws: ``python -m benchmarks.channels [--json]``.

For 50, 500 and 6,000 devices in a city, each in a process of its own: opening the law with Sionna's import, rays of a
trial, and a round after that. Beside it, for as many devices as fit (500 in a drop), Sionna's own coefficients of one
draw at the same places; the ratio is of a round to that. What both compute was compared by tests/test_sionna.py.
The floor of a round is one multiplication and one sine and cosine for every ray and a product with rows and columns;
bytes of the responses that are read are printed for scale.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

SIZES = ((50, 100), (500, 100), (6000, 16))


def measure(devices: int, antennas: int, fading: str = "3gpp-umi") -> dict[str, float]:
    """One size, in this process."""
    import airfl
    from airfl.channel import open_link
    from airfl.channel.laws.sionna import WHERE, drawing
    from airfl.channel.laws.site import DROP, open_scenario, place

    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    config = airfl.preset("paper").replace(
        {"channel.fading": fading, "channel.cell_radius_m": 200.0, "channel.carrier_hz": 3.5e9, "system.rounds": 50,
         "system.num_devices": devices, "system.num_antennas": antennas, "scheme.combiner": "auto"}
    )  # fmt: skip
    begin = time.perf_counter()
    with drawing(0):
        from sionna.phy.channel.tr38901 import UMi
    loaded = time.perf_counter()
    law = open_link(config, [0]).law
    rays = law.rays(0)
    drawn = time.perf_counter()
    for t in range(10):
        law.draw(0, t)
    after, peak = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    some = min(devices, DROP)
    with drawing(1):
        scenario = open_scenario(config.channel, antennas)
        own = UMi(3.5e9, "low", scenario.ut_array, scenario.bs_array, "uplink", **WHERE)
        place(own, config.channel, law.places_m[0, :some], law._inside(0)[:some])
        own(1, 1.0)
    theirs = time.perf_counter() - after
    each = (after - drawn) / 10
    return {
        "devices": devices, "antennas": antennas, "import_s": loaded - begin, "rays_s": drawn - loaded,
        "round_s": each, "sionna_draw_s": theirs * devices / some, "times_faster": theirs * devices / some / each,
        "responses_mb": (rays.vertical.nbytes + rays.horizontal.nbytes + rays.strength.nbytes) / 1e6,
        "peak_mb": (peak - base) / 1e3,
        "peak_with_sionnas_own_mb": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base) / 1e3,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", nargs=2, type=int, metavar=("DEVICES", "ANTENNAS"))
    arguments = parser.parse_args()
    if arguments.only:
        print(json.dumps(measure(*arguments.only)))
        return
    rows = []
    for devices, antennas in SIZES:
        command = [sys.executable, "-m", "benchmarks.channels", "--only", str(devices), str(antennas)]
        rows.append(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
        if not arguments.json:
            print("  ".join(f"{name} {value:.3g}" for name, value in rows[-1].items()), flush=True)
    if arguments.json:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
