"""Numbers in plain words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from airfl.accounting import is_proven, words_for
from airfl.catalogue import is_import_path
from airfl.channel.budget import power_limit_w
from airfl.config import Config
from airfl.privacy import SEEING
from airfl.report.radio import blocks_sentence, radio_sentences
from airfl.report.trust import trust_sentences, whom_to_trust
from airfl.runs import Result, SchemeResult
from airfl.schemes import scheme_shown
from airfl.wording import (
    NEIGHBOUR_WORDS,
    OBSERVER_WORDS,
    at_most_text,
    epsilon_meaning,
    epsilon_text,
    number,
    percent,
    power_text,
)


def headline(result: Result) -> list[str]:
    """The run in a few sentences, most important first."""
    summary = result.summary
    sentences = []
    for name, entry in summary["schemes"].items():
        if entry["status"] != "done":
            sentences.append(f"{scheme_shown(name).title} did not finish: {entry['message']}.")
    sentences += nothing_learnt(result)
    private = [name for name in private_schemes(result) if summary["schemes"][name]["status"] == "done"]
    for name in private:
        sentences.append(_promise(result, name))
        sentences += _booked_unproven(result, name)
        if name == private[0]:
            sentences.append(_compare(name, summary["schemes"]))
            sentences.append(perk_sentence(result.schemes[name], power_limit_w(result.config.channel)))
    sentences += whom_to_trust(result, private)
    for scheme in result.schemes:
        sentences += trust_sentences(result, scheme)
    if any(scheme_shown(name).policy.over_air for name in result.schemes):
        sentences += radio_sentences(result.config)
        sentences.append(blocks_sentence(result.config, result.dim))
    sentences += [silence_sentence(result.config, name, scheme) for name, scheme in result.schemes.items()]
    return [sentence for sentence in sentences if sentence]


def _promise(result: Result, name: str) -> str:
    """What a private scheme reached, and the least ε that is proven for it."""
    summary, entry = result.summary, result.summary["schemes"][name]
    by, exact = _least(result, name)
    accuracy = percent(entry["accuracy_mean"], entry["accuracy_std"], entry["trials"])
    if result.schemes[name].noise_follows_data:
        return (
            f"{scheme_shown(name).title} reached {accuracy} test accuracy. How much noise its devices added follows an "
            f"estimate from their updates, so nothing is proven: for the noise that was there {words_for(by)} finds "
            f"ε = {at_most_text(exact)} (δ = {number(summary['delta'])}, {NEIGHBOUR_WORDS[summary['neighbours']]})."
        )
    return (
        f"{scheme_shown(name).title} reached {accuracy} test accuracy. Anyone who sees the final model learns "
        f"at most ε = {at_most_text(exact)} about any one device "
        f"(δ = {number(summary['delta'])}, {NEIGHBOUR_WORDS[summary['neighbours']]}, {words_for(by)}): "
        f"{epsilon_meaning(exact)}."
    )


def _least(result: Result, name: str) -> tuple[str, float | None]:
    """The least proven ε and whose it is; credit for hidden participation only where what would tell is left out."""
    epsilons = result.summary["schemes"][name]["epsilon"]
    hides = result.schemes[name].hides
    return tightest({by: epsilon for by, epsilon in epsilons.items() if hides or by != "sampled"})


def _booked_unproven(result: Result, name: str) -> list[str]:
    """Where the budget was booked by an accountant that proves nothing: what is proven, for the relation it counts."""
    summary, accountant = result.summary, result.summary["schemes"][name]["accountant"]
    if is_proven(accountant):
        return []
    _, exact = _least(result, name)
    if result.schemes[name].noise_follows_data:
        return [
            f"The budget of ε = {at_most_text(summary['budget_epsilon'])} was booked by `{accountant}`: no promise."
        ]
    whose = "from outside" if is_import_path(accountant) else "which proves less than it says"
    proven = at_most_text(exact)
    if accountant == "paper" and summary["neighbours"] != "replace":  # its own relation is built in
        replaced = result.schemes[name].epsilon(neighbours="replace")
        proven = f"{at_most_text(replaced)} for {NEIGHBOUR_WORDS['replace']}, which it counts, and {proven} otherwise"
    return [
        f"The budget of ε = {at_most_text(summary['budget_epsilon'])} was booked by `{accountant}`, {whose}; the "
        f"proven figure for the same noise is {proven}."
    ]


#: Of the way from chance to no error at all, what a model must go to have learnt anything to speak of.
LEARNT = 0.1


def nothing_learnt(result: Result) -> list[str]:
    """Private schemes whose model is hardly better than naming one class always: said before any promise."""
    chance, said = result.chance, []
    for name, entry in result.summary["schemes"].items():
        accuracy = entry["accuracy_mean"]
        if not chance or accuracy is None or not scheme_shown(name).keeps_budget:
            continue
        if accuracy - chance >= LEARNT * (1.0 - chance):
            continue
        perk = ", perk or not" if entry["perk"] else ""
        said.append(
            f"{scheme_shown(name).title} learnt next to nothing: {percent(accuracy)} test accuracy, and naming one "
            f"class always gives {percent(chance)}. What is said of its privacy{perk} is about a model of no use."
        )
    return said


def observers_shown(result: Result) -> list[str]:
    """Whom tables show ε for; anyone who sees every device by itself only where that is finite for some scheme."""
    entries = [entry["epsilon_by_observer"] for entry in result.summary["schemes"].values()]
    named = dict.fromkeys(name for entry in entries for name in entry)
    bare = all(entry.get("everything", {}).get("gaussian") is None for entry in entries)
    return [name for name in named if name != "everything" or not bare]


def epsilon_shown(entry: Mapping[str, Any], observer: str) -> str:
    """Exact ε against an observer, in a table; a dash where it is left out, for it would tell who took part."""
    found = entry["epsilon_by_observer"].get(observer)
    return "–" if found is None else at_most_text(found["gaussian"])


def data_text(config: Config) -> str:
    """What the model is trained on."""
    learning = config.learning
    return learning.dataset if learning.features == "none" else f"{learning.dataset}, {learning.features} features"


def tightest(epsilons: Mapping[str, float | None]) -> tuple[str, float | None]:
    """The smallest ε among accountants that prove theirs, and whose it is; the exact one where several agree."""
    proven = [(math.inf if e is None else e, name) for name, e in epsilons.items() if is_proven(name)]
    epsilon, name = min(proven, key=lambda pair: (pair[0], list(epsilons).index(pair[1])))
    return name, epsilon if math.isfinite(epsilon) else None


def audit_sentence(summary: Mapping[str, Any]) -> str:
    """What an audit found, in plain words."""
    lower, confidence = summary["epsilon_lower"], summary["confidence"]
    proven = {name: e for name, e in summary["epsilon_upper"].items() if is_proven(name)}
    name, upper = tightest(proven)
    found = (
        f"At {100 * confidence:g} % confidence the mechanism leaks at least ε = {epsilon_text(lower)} "
        f"(δ = {number(summary['delta'])}, {NEIGHBOUR_WORDS[summary['neighbours']]})"
    )
    if summary["findings"]:
        return f"{found}. Something is wrong: {'; '.join(summary['findings'])}."
    said = (
        f"{found} to {OBSERVER_WORDS[summary['observer']]}; the tightest proven bound is ε = {at_most_text(upper)} "
        f"({name})."
    )
    for view in summary["views"][1:]:
        if view["observer"] in SEEING:
            name, upper = tightest(view["epsilon_upper"])
            said += (
                f" To {OBSERVER_WORDS[view['observer']]} it leaks at least ε = {epsilon_text(view['epsilon_lower'])}, "
                f"and at most {at_most_text(upper)} ({name})."
            )
    return f"{said} Nothing speaks against it. {ceiling_sentence(summary)}"


def ceiling_sentence(summary: Mapping[str, Any]) -> str:
    """What an audit of this size could have refuted, had the attack never erred."""
    ceilings = [
        max((view[key] for view in summary["views"] if view[key] is not None), default=None)
        for key in ("epsilon_ceiling", "epsilon_ceiling_gaussian")
    ]
    count, up = summary["repetitions"], [None if c is None else epsilon_text(math.ceil(10 * c) / 10) for c in ceilings]
    size = f"{count:,} canaries" if up[1] is None else f"{count // 2:,} repetitions in each world"
    gaussian = "" if up[1] is None else f" ({up[1]} for a Gaussian trade-off curve)"
    said = f"With {size} this audit could not have refuted a claim above ε = {up[0]}{gaussian}"
    upper = tightest(summary["epsilon_upper"])[1]
    beyond = upper is None or upper > max(c for c in ceilings if c is not None)
    return f"{said}: the proven bound is beyond its reach." if beyond else f"{said}."


def private_schemes(result: Result) -> list[str]:
    """Those that keep a budget."""
    return [name for name in result.schemes if scheme_shown(name).keeps_budget]


def private_scheme(result: Result) -> str | None:
    """The scheme whose promise the reader cares about most: the first that keeps a budget."""
    return next(iter(private_schemes(result)), None)


def _compare(name: str, schemes: dict[str, dict[str, object]]) -> str:
    parts = []
    mine = schemes[name]["accuracy_mean"]
    for other, words in (
        ("fedavg", "vanilla FL over an ideal channel"),
        ("airfl-mimo", "the same radio link without a privacy budget"),
    ):
        theirs = schemes.get(other, {}).get("accuracy_mean")
        if isinstance(mine, float) and isinstance(theirs, float):
            points = 100 * (theirs - mine)
            level = f"{abs(points):.1f} points {'below' if points >= 0 else 'above'}"
            parts.append(f"{'level with' if abs(points) < 0.05 else level} {words}")
    return f"That is {' and '.join(parts)}." if parts else ""


def silence_sentence(config: Config, name: str, scheme: SchemeResult) -> str:
    """How many devices were left out of a round, why so many, and how many of them always."""
    shown = scheme_shown(name)
    if config.scheme.selection == "all" or not scheme.transmitting or not shown.policy.over_air:
        return ""
    system, most = config.system, max(scheme.never_heard, default=0)
    why = ", the share with the least error of the mean," if config.scheme.share == "best" else ""
    never = "every device was heard in some round"
    if most:
        never = f"{most:,} of {system.num_devices:,} were never heard, and the model knows nothing of their data"
    share = f"{scheme.transmitting:,.0f} of {system.num_active:,} active devices{why}"
    return f"{shown.title}: {share} transmitted in a round; {never}."


def perk_sentence(scheme: SchemeResult, power_w: float) -> str:
    """Whether privacy came for free, and by how many dB it was missed or met."""
    if not scheme.perks:
        return ""
    snr = sum(item.snr_threshold_db for item in scheme.perks) / len(scheme.perks)
    where = (
        f"the threshold is a worst-case SNR of {snr:.1f} dB (P·Λ_min/σ² per antenna, Λ_min the median path gain at the "
        "cell edge or that of the weakest measured device)"
    )
    margins, kept = [item.margin_db for item in scheme.perks], sum(item.is_perk for item in scheme.perks)
    if kept == len(margins):
        least = f"{'at least ' if len(margins) > 1 else ''}{min(margins):.1f} dB"
        return f"DP was a perk: the channel's own noise met the budget with {least} to spare; {where}."
    often = f"DP was a perk in {kept} of {len(margins)} trials only" if kept else "DP was not a perk here"
    return (
        f"{often}: at {power_text(power_w)} the link is {'up to ' if len(margins) > 1 else ''}{-min(margins):.1f} dB "
        f"too good, so devices hold power back to let the receiver noise through; {where}."
    )
