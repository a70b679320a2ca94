"""Is DP a perk on this link?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from airfl.cli.app import Json, app, loading
from airfl.cli.complete import complete_scenarios


@app.command()
def plan(
    scenario: Annotated[
        str | None,
        typer.Argument(
            metavar="SCENARIO|FILE",
            help="Start from these numbers; options override them.",
            autocompletion=complete_scenarios,
        ),
    ] = None,
    devices: Annotated[int | None, typer.Option(help="n.")] = None,
    active: Annotated[int | None, typer.Option(help="K, devices that transmit in a round.")] = None,
    participation: Annotated[float | None, typer.Option(help="r = K/n, in place of --active.")] = None,
    sampling: Annotated[str | None, typer.Option(help="fixed: exactly K of n; poisson: a coin each.")] = None,
    antennas: Annotated[int | None, typer.Option(help="m.")] = None,
    power: Annotated[float | None, typer.Option(help="P, transmit power limit, W.")] = None,
    power_dbm: Annotated[float | None, typer.Option(help="The same in dBm.")] = None,
    distance: Annotated[float | None, typer.Option(help="Cell radius, m.")] = None,
    snr: Annotated[float | None, typer.Option(help="Worst-case SNR P·Λ_min/σ² per antenna, dB.")] = None,
    bandwidth: Annotated[float | None, typer.Option(help="Hz.")] = None,
    carrier: Annotated[float | None, typer.Option(help="Hz.")] = None,
    noise_density: Annotated[float | None, typer.Option(help="Receiver noise, dBm/Hz; default −173.")] = None,
    noise_figure: Annotated[float | None, typer.Option(help="Of the receiver, dB over −174 dBm/Hz.")] = None,
    antenna_gain: Annotated[float | None, typer.Option(help="Of a base station's antenna, dBi.")] = None,
    device_gain: Annotated[float | None, typer.Option(help="Of a device's antenna, dBi.")] = None,
    loss: Annotated[float | None, typer.Option(help="Of cables, bodies and windows, dB.")] = None,
    path_loss: Annotated[
        str | None, typer.Option(metavar="NAME", help="As channel.path_loss of a run; default free-space.")
    ] = None,
    path_loss_exponent: Annotated[
        float | None, typer.Option(help="Log-distance, from free space at 1 m: 2 is free space, 3.5 a city.")
    ] = None,
    base_height: Annotated[float | None, typer.Option(help="Of the base station, m; for 3GPP path losses.")] = None,
    device_height: Annotated[float | None, typer.Option(help="Of devices, m; for 3GPP path losses.")] = None,
    shadowing: Annotated[float | None, typer.Option(help="Log-normal, dB; the edge is then the median's.")] = None,
    interference: Annotated[
        float | None, typer.Option(help="At each antenna over the bandwidth, dBm; never counted as privacy.")
    ] = None,
    fading: Annotated[
        str | None, typer.Option(metavar="NAME", help="As channel.fading of a run; default rayleigh.")
    ] = None,
    rician_k: Annotated[float | None, typer.Option(help="Of rician, dB; default 6.")] = None,
    drops: Annotated[
        int | None, typer.Option(help="Draw so many places of the devices, with channels; default: tables.")
    ] = None,
    speed: Annotated[float | None, typer.Option(help="Of what moves, m/s: how long channels stand still.")] = None,
    delay_spread: Annotated[float | None, typer.Option(help="RMS, s: over what bandwidth channels are flat.")] = None,
    coherence_hz: Annotated[float | None, typer.Option(help="The bandwidth over which channels are flat.")] = None,
    coherence_s: Annotated[float | None, typer.Option(help="The time for which channels stand still.")] = None,
    symbols: Annotated[
        str | None, typer.Option(help="real: one coordinate a symbol; complex: two, in half the time.")
    ] = None,
    csi_error: Annotated[
        float | None, typer.Option(help="τ, error power of channel estimates: pilots it takes, and its price in ε.")
    ] = None,
    csi_age: Annotated[
        float | None, typer.Option(help="s, how old the channels are that the base station knows; with --speed.")
    ] = None,
    phase_error: Annotated[float | None, typer.Option(help="Of oscillators, rad: what it takes of the sum.")] = None,
    timing_offset: Annotated[float | None, typer.Option(help="RMS, s: what it takes of bands off the carrier.")] = None,
    clipping: Annotated[float | None, typer.Option(help="dB above the mean power limit; named, not counted.")] = None,
    adc_bits: Annotated[int | None, typer.Option(help="Of the converters; named, not counted.")] = None,
    parameters: Annotated[int | None, typer.Option(help="d.")] = None,
    rounds: Annotated[int | None, typer.Option(help="T.")] = None,
    clip: Annotated[float | None, typer.Option(help="c, the clip norm.")] = None,
    delta: Annotated[float | None, typer.Option(help="δ; default 1e-5.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="The target.")] = None,
    neighbours: Annotated[str | None, typer.Option(help="zero-out or replace; default: as a run.")] = None,
    symbol_rate: Annotated[float | None, typer.Option(help="Complex symbols a second; default: the bandwidth.")] = None,
    update_norm: Annotated[float | None, typer.Option(help="Norm of the averaged update; default alignment·c.")] = None,
    alignment: Annotated[float | None, typer.Option(help="Norm of the averaged update over c; default 0.3.")] = None,
    layout: Annotated[str | None, typer.Option(help="disk, or ring: all devices at the edge.")] = None,
    noise_var: Annotated[
        float | None, typer.Option(help="v per real coordinate of the sum, in place of the link.")
    ] = None,
    tolerate: Annotated[
        float | None, typer.Option(help="Noise-to-update ratio for the smallest number of devices.")
    ] = None,
    solve_for: Annotated[str | None, typer.Option(metavar="NAME", help="Which quantity is unknown.")] = None,
    observer: Annotated[
        str | None, typer.Option(metavar="NAME", help="base-station: what hiding from it costs as well; takes seconds.")
    ] = None,
    out: Annotated[str | None, typer.Option(help="Folder for the phase diagram.")] = None,
    as_json: Json = False,
) -> None:
    """Is DP a perk on this link? Free ε, margin, noise against update, energy, time; or solve for one unknown."""
    with loading():
        from airfl import linkplan
        from airfl.analysis.call import draw_when_needed
        from airfl.errors import InputError
        from airfl.linkplan import accuracy
        from airfl.linkplan.show import print_plan
        from airfl.report.progress import LateSteps

    given: dict[str, Any] = {
        "devices": devices,
        "active": active,
        "participation": participation,
        "sampling": sampling,
        "antennas": antennas,
        "power_w": power,
        "power_dbm": power_dbm,
        "distance_m": distance,
        "snr_db": snr,
        "bandwidth_hz": bandwidth,
        "carrier_hz": carrier,
        "noise_density_dbm_hz": noise_density,
        "noise_figure_db": noise_figure,
        "antenna_gain_dbi": antenna_gain,
        "device_gain_dbi": device_gain,
        "loss_db": loss,
        "path_loss": path_loss,
        "path_loss_exponent": path_loss_exponent,
        "base_height_m": base_height,
        "device_height_m": device_height,
        "shadowing_db": shadowing,
        "interference_dbm": interference,
        "fading": fading,
        "rician_k_db": rician_k,
        "speed_m_s": speed,
        "delay_spread_s": delay_spread,
        "coherence_hz": coherence_hz,
        "coherence_s": coherence_s,
        "symbols": symbols,
        "csi_error": csi_error,
        "csi_age_s": csi_age,
        "phase_error_rad": phase_error,
        "timing_offset_s": timing_offset,
        "clipping_db": clipping,
        "adc_bits": adc_bits,
        "parameters": parameters,
        "rounds": rounds,
        "clip_norm": clip,
        "delta": delta,
        "epsilon": epsilon,
        "neighbours": neighbours,
        "symbol_rate_hz": symbol_rate,
        "update_norm": update_norm,
        "alignment": alignment,
        "layout": layout,
        "noise_var": noise_var,
    }
    if observer not in (None, "base-station"):
        raise InputError(f"--observer must be base-station, whom devices can hide from; got `{observer}`")
    with LateSteps("drops") as bar:
        answer = linkplan.plan(scenario, given, solve_for, tolerate, drops, bar.stand, draw_when_needed)
    hidden = None
    if observer is not None:
        from airfl import analysis
        from airfl.analysis import cover_plan
        from airfl.report.progress import Steps

        cover_plan.check_link(answer.quantities)
        with Steps("cover", cover_plan.steps(answer.quantities)) as steps:
            hidden = analysis.plan_cover(answer.quantities, advance=steps.advance, kept=answer.epsilon_kept)
    title = "plan" if scenario is None else Path(scenario).stem
    check = accuracy.study_check()
    folder = None
    if out is not None:
        from airfl.report.phase import draw_plan
        from airfl.runs import prepare_folder

        folder = prepare_folder(out, force=True)
        draw_plan(answer, title, folder)
    if as_json:
        checked = None if check is None else check.summary
        shielded = None if hidden is None else hidden.summary
        print(json.dumps({**answer.summary, "prediction_check": checked, "shielded": shielded}, allow_nan=False))
        return
    print_plan(answer, title, check, folder)
    if hidden is not None:
        from airfl.report.cover_plan import print_cover

        print_cover(hidden, answer.quantities)
