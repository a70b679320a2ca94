"""Whom a promise is about and what it rests on, in plain words: printed with it, always."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from airfl.accounting import is_proven
from airfl.channel.budget import credited_power_w, interference_of, noise_of, power_limit_w
from airfl.config import Config
from airfl.runs import Result, SchemeResult
from airfl.schemes import scheme_shown
from airfl.study import Plan
from airfl.wording import NEIGHBOUR_WORDS, OBSERVER_WORDS, at_most_text, epsilon_meaning, number, power_text


def whom_to_trust(result: Result, private: Sequence[str]) -> list[str]:
    """Whether the base station must be trusted.

    Args:
        private: schemes that make a promise and are done.
    """
    open_ones = [name for name in private if scheme_shown(name).encoder.cover == "nothing"]
    if private:  # what others hide in is said with what it rests on
        return [_trusted(result, name, named=len(result.schemes) > 1 and len(private) > 1) for name in open_ones]
    done = [name for name in result.schemes if result.summary["schemes"][name]["status"] == "done"]
    over_air = [name for name in done if scheme_shown(name).policy.over_air and not scheme_shown(name).keeps_budget]
    if over_air:
        return [_without_promise(result, over_air[0])]
    if done:
        return ["No scheme of this run promises anything: a server that receives every update sees every update."]
    return []


def _trusted(result: Result, name: str, *, named: bool) -> str:
    """What a base station learns of devices that do not hide from it."""
    if result.schemes[name].noise_follows_data:
        return f"Nothing is proven of {scheme_shown(name).title} against a base station that looks at every antenna."
    if result.schemes[name].hides:
        return _hidden(name)
    by_observer, antennas = result.summary["schemes"][name]["epsilon_by_observer"], result.config.system.num_antennas
    exact, curious = (by_observer[who]["gaussian"] for who in ("model", "base-station"))
    if curious is None or exact is None or curious > exact:
        title = f"{scheme_shown(name).title} trusts the base station" if named else "The base station is trusted"
        return (
            f"{title}: the promise is about anyone who sees what it makes public. A base station that looks at every "
            f"antenna learns up to ε = {at_most_text(curious)}: {epsilon_meaning(curious)}."
        )
    title = f"With {scheme_shown(name).title} the base station" if named else "The base station"
    return (
        f"{title} learns no more, ε = {at_most_text(curious)}, even if it looks at every antenna. This rests on its "
        f"having no more than {antennas}, and on noise in its receiver that it cannot do without."
    )


def _hidden(name: str) -> str:
    """Why nothing is said of observers of signals."""
    return (
        f"{scheme_shown(name).title} trusts the base station, and counts on nobody knowing who took part: what depends "
        "on that, such as ε of observers of signals, is left out here, and the ledger has it."
    )


def study_trust(plan: Plan, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the ε of a study's table mean: at which δ, for which neighbours, against whom, and who is trusted."""
    configs = [plan.config(point) for point in range(len(plan.points))]
    deltas = sorted({config.privacy.delta for config in configs})
    relations = sorted({NEIGHBOUR_WORDS[config.neighbours] for config in configs})
    schemes = dict.fromkeys(row["scheme"] for row in rows)
    hidden = [scheme_shown(name).title for name in schemes if scheme_shown(name).encoder.cover != "nothing"]
    also = f", and for {' and '.join(hidden)} also against whom it hides from" if hidden else ""
    said = [
        f"ε is what was booked, at δ = {', '.join(map(number, deltas))} for {' or '.join(relations)}, against anyone "
        f"who sees the models{also}; ∞ is no protection."
    ]
    follows = dict.fromkeys(row["scheme"] for row in rows if row["noise_follows_data"])
    said += _not_proofs(schemes.keys() - follows.keys(), configs)
    if follows:
        titles = " and ".join(scheme_shown(name).title for name in follows)
        said.append(f"The noise of {titles} follows an estimate from updates: no ε of it is a proof.")
    heard = [
        row["epsilon_by_observer"]["base-station"]["gaussian"]
        for row in rows
        if "base-station" in (row["epsilon_by_observer"] or ()) and not row["noise_follows_data"]
        if scheme_shown(row["scheme"]).policy.over_air
    ]
    if heard:
        found = [math.inf if value is None else value for value in heard]
        low, high = at_most_text(min(found)), at_most_text(max(found))
        span = low if low == high else f"{low} to {high}"
        said.append(f"Over the air a base station that looks at every antenna learns up to ε = {span}.")
    return said


def _not_proofs(schemes: Iterable[str], configs: Sequence[Config]) -> list[str]:
    """Which of the booked ε are no proofs, and where those are."""
    asked = {config.privacy.accountant for config in configs} - {"auto"}
    by_scheme = {
        name: {own} if (own := scheme_shown(name).accountant) else asked
        for name in schemes
        if scheme_shown(name).keeps_budget
    }
    doubtful = sorted({name for names in by_scheme.values() for name in names if not is_proven(name)})
    if not doubtful:
        return []
    listed = " and ".join(f"`{name}`" for name in doubtful)
    relation = " (`paper` counts one device's data replaced, always)" if "paper" in doubtful else ""
    return [f"What {listed} booked is not a proof{relation}; *ε exact* is, against anyone who sees the final model."]


def _without_promise(result: Result, name: str) -> str:
    if result.schemes[name].hides:
        return _hidden(name)
    by_observer = result.summary["schemes"][name]["epsilon_by_observer"]
    exact, curious = (at_most_text(by_observer[who]["gaussian"]) for who in ("model", "base-station"))
    return (
        f"{scheme_shown(name).title} keeps no budget. The channel's own noise gives ε = {exact} against anyone who "
        f"sees the final model, and ε = {curious} against a base station that looks at every antenna."
    )


def trust_sentences(result: Result, name: str) -> list[str]:
    """What observers of signals learn of a scheme that hides devices from them, and what that rests on."""
    scheme, entry, config = result.schemes[name], result.summary["schemes"][name], result.config
    if scheme.noise_follows_data:
        return []
    if scheme_shown(name).encoder.cover == "nothing" or entry["status"] != "done":
        return eavesdropper_sentence(config, entry, scheme_shown(name).title)
    seen = entry["epsilon_by_observer"][scheme.observer]["gaussian"]
    who = OBSERVER_WORDS[scheme.observer]
    said = [
        f"{scheme_shown(name).title}: {who} learns at most ε = {at_most_text(seen)} about any one "
        f"{'honest ' if config.privacy.colluding else ''}device over the whole run: {epsilon_meaning(seen)}."
    ]
    said += cover_sentence(scheme, config)
    said.append(rests_on(scheme, config))
    said += _colluding(config) + _dropouts(scheme, config) + _leak(scheme, config)
    if scheme.observer != "eavesdropper":
        said += eavesdropper_sentence(config, entry, scheme_shown(name).title)
    return said


def cover_sentence(scheme: SchemeResult, config: Config) -> list[str]:
    """What devices hid in, what power that took, and what noise."""
    if not scheme.cover:
        return []
    most = max(scheme.cover, key=lambda used: used.power_db)
    parts = []
    if most.quadrature:
        parts.append(f"noise in quadrature of {number(float(f'{most.quadrature:.2g}'))} c² per coordinate")
    if most.masks:
        parts.append(f"masks of {number(float(f'{most.masks:.2g}'))} c² per coordinate and device")
    if not parts and not most.own:
        return ["The receiver's noise hides them by itself: they send no cover."]
    heard = "which the sum does not hear"
    if most.own:
        parts.append(f"noise of their own of {number(float(f'{most.own:.2g}'))} c²")
        heard = "of which the sum hears their own noise only" if len(parts) > 1 else "which the sum hears"
    record = max((row.max_power_w for row in scheme.records if not math.isnan(row.max_power_w)), default=0.0)
    return [
        f"Devices hid in {' and '.join(parts)}, {heard}: {most.power_db:.0f} dB more power than the update alone, at "
        f"most {power_text(record)} of the {power_text(power_limit_w(config.channel))} that they have, and "
        f"{max(0.0, most.price_db):.1f} dB more noise than a trusted base station takes."
    ]


def rests_on(scheme: SchemeResult, config: Config) -> str:
    """The assumptions behind a promise against anyone who sees signals."""
    parts = []
    if scheme.observer == "base-station":
        parts.append(
            "a base station that is curious but honest (it announces the true channels, combiners and senders, and "
            f"public randomness is beyond its choice), with no more than {config.system.num_antennas} antennas"
        )
        own = 10.0 * math.log10(noise_of(config.channel) / credited_power_w(config))
        if config.privacy.credited_noise == "thermal":
            more = f"; the {own:.1f} dB that its receiver adds are its own, and do not count" if own >= 0.05 else ""
            parts.append(f"thermal noise (kT₀B) that it cannot do without{more}")
        else:
            parts.append("all the noise of its receiver, as if it could not do without")
    if any(used.masks for used in scheme.cover):
        parts.append(
            "authenticated keys between pairs of devices, fresh for every pair, cycle and round, and so on a bound on "
            "computation"
        )
    if any(used.quadrature or used.own for used in scheme.cover):
        parts.append("every honest device drawing its noise afresh")
    return f"This rests on {'; on '.join(parts)}." if parts else ""


def eavesdropper_sentence(config: Config, entry: dict[str, object], title: str) -> list[str]:
    """What the eavesdropper learns, if there is one."""
    by_observer = entry["epsilon_by_observer"]
    if config.eavesdropper is None or not isinstance(by_observer, dict) or "eavesdropper" not in by_observer:
        return []
    x, y = config.eavesdropper.place
    density = config.eavesdropper.noise_density_dbm_hz
    noise = "without any noise" if density is None else f"with noise of {number(density)} dBm/Hz"
    epsilon = by_observer["eavesdropper"]["gaussian"]
    return [
        f"{title}: an eavesdropper {math.hypot(x, y):,.0f} m from the base station, with "
        f"{config.eavesdropper.antennas} antennas {noise}, who also hears the models, learns at most "
        f"ε = {at_most_text(epsilon)}: {epsilon_meaning(epsilon)}."
    ]


def _colluding(config: Config) -> list[str]:
    share = config.privacy.colluding
    if not share:
        return []
    return [
        f"{100 * share:g} % of the devices hand over what they know: their noise and the masks that they share do not "
        "count, and ε is about the others."
    ]


def _dropouts(scheme: SchemeResult, config: Config) -> list[str]:
    share = config.system.dropout
    if not share:
        return []
    masks = ", the masks that they share are disclosed" if any(used.masks for used in scheme.cover) else ""
    return [
        f"{100 * share:g} % of the devices drop out of a round after it was planned: their noise is missing{masks}, "
        "and what is booked is what was left."
    ]


def _leak(scheme: SchemeResult, config: Config) -> list[str]:
    tau = config.channel.estimation_error
    if not tau or not scheme.records or not scheme.ledgers:
        return []
    disturbance = interference_of(config.channel) / 2.0  # not booked either, and no leak
    heard = sum(row.noise_var - row.combiner_norm**2 * disturbance for row in scheme.records) / len(scheme.records)
    booked = [event.noise_var for ledger in scheme.ledgers for event in ledger.events]
    share = max(0.0, 1.0 - sum(booked) / len(booked) / heard) if heard and booked else 0.0
    credit = "counted as noise" if config.privacy.credit_leak else "not counted as noise"
    return [
        f"Channels are known to {100 * math.sqrt(tau):.2g} % of their amplitude, so cover leaks into the sum: "
        + (f"{100 * share:.0f} % of its noise, {credit}." if not config.privacy.credit_leak else f"it is {credit}.")
    ]
