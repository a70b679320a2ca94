"""Odd questions to ``airfl epsilon``: every answer is held against arbitrary precision."""

from __future__ import annotations

import random
from pathlib import Path

import mpmath

from tests.fuzz.inprocess import Ended, call
from tests.fuzz.tally import Outcome, Tally

ODD = ("0", "-1", "nan", "inf", "-inf", "1e400", "1e-400", "ten", "", "0x10", "1_000", "[/red]", "٣")


def epsilons(count: int, seed: int, folder: Path) -> Tally:
    """``count`` questions."""
    tally = Tally()
    for number in range(seed, seed + count):
        question = _question(random.Random(number))
        ended = call("epsilon", *(part for pair in question.items() for part in pair if part), "--json", folder=folder)
        outcome, seen = _judged(question, ended)
        tally.count(outcome, number, f"{' '.join(f'{k} {v}' for k, v in question.items())}: {seen}")
    return tally


def _question(draw: random.Random) -> dict[str, str]:
    wide = draw.random() < 0.5  # anything that a float can hold, or what somebody might mean
    exponent = (lambda: draw.uniform(-323, 308)) if wide else (lambda: draw.uniform(-4, 6))
    rounds = str(draw.choice([1, 2, 10, 50, 1000, 10**6, 10**7]) if draw.random() < 0.3 else draw.randint(1, 300))
    asked = {"--clip-norm": f"{10 ** exponent():.6e}", "--noise-var": f"{10 ** exponent():.6e}", "--rounds": rounds}
    if draw.random() < 0.3:  # near one another, where squares leave the range of floats but their ratio does not
        clip = draw.choice([draw.uniform(-163, -150), draw.uniform(-160, 99), draw.uniform(70, 100)])
        asked["--clip-norm"] = f"{10**clip:.6e}"
        asked["--noise-var"] = f"{10 ** max(-323.0, min(200.0, 2 * clip + draw.uniform(-2, 3))):.6e}"
    if draw.random() < 0.6:
        asked["--delta"] = f"{10 ** draw.uniform(-30, 0):.3e}"
    if draw.random() < 0.5:
        asked["--participation"] = f"{10 ** draw.uniform(-6, 0):.4e}" if draw.random() < 0.5 else str(draw.random())
        if draw.random() < 0.5:
            asked["--poisson"] = ""
    if draw.random() < 0.3:
        asked["--neighbours"] = draw.choice(["zero-out", "replace"])
    if draw.random() < 0.2:
        asked["--received-snr"] = f"{10 ** draw.uniform(-200, 200):.4e}"
    if draw.random() < 0.2:
        asked["--devices"] = str(draw.choice([1, 2, 50, 6000, 10**9]))
    if draw.random() < 0.15:
        domain = {"--diameter": "2", "--smoothness": "0.5", "--learning-rate": "0.01", "--local-steps": "5"}
        asked.update({"--devices": "50", **domain})
        asked[draw.choice(list(domain))] = f"{10 ** draw.uniform(-12, 12):.3e}"
    if draw.random() < 0.15:
        asked[draw.choice(list(asked))] = draw.choice(ODD)
    return asked


def _judged(question: dict[str, str], ended: Ended) -> tuple[Outcome, str]:
    outcome, seen = ended.judged()
    if outcome != "ok":
        return outcome, seen
    try:
        answers = ended.answer["accountants"]
    except (ValueError, KeyError, IndexError) as error:
        return "silent_difference", f"no JSON: {error}"
    exact = answers["gaussian"]
    reach = 1 if exact["neighbours"] == "zero-out" else 2
    if float(question["--noise-var"]) == 0.0:  # no noise protects nobody
        return (
            ("ok", "") if exact["epsilon"] is None else ("silent_difference", f"ε = {exact['epsilon']} without noise")
        )
    with mpmath.workdps(60):
        c, v = (mpmath.mpf(float(question[name])) for name in ("--clip-norm", "--noise-var"))
        mu2 = mpmath.mpf(int(float(question["--rounds"]))) * (reach * c) ** 2 / v
        wrong = _wrong(exact["epsilon"], float(question.get("--delta", "1e-5")), mpmath.sqrt(mu2))
    if wrong:
        return "silent_difference", wrong
    for name in ("sampled", "liu2020"):  # credit never raises ε, and the tail bound is never below the exact one
        epsilon = answers[name]["epsilon"]
        above, below = (exact["epsilon"], epsilon) if name == "sampled" else (epsilon, exact["epsilon"])
        above, below = (float("inf") if value is None else value for value in (above, below))
        if not below <= above * (1 + 1e-6) + 1e-12:
            return "silent_difference", f"{name} says {epsilon} where gaussian says {exact['epsilon']}"
    return "ok", ""


def _wrong(epsilon: float | None, delta: float, mu: mpmath.mpf) -> str:
    """Why ε is not the smallest at δ of a μ-Gaussian mechanism; null may stand for what no float can hold."""
    if epsilon is None:
        return "" if mu > 1e100 else f"no finite ε for μ = {mpmath.nstr(mu, 5)}"
    if mu > 1e9:  # ε ≈ μ²/2 + μ·Φ⁻¹(1 − δ): far beyond what anyone calls private, only its size is looked at
        return "" if epsilon >= float(min(mu**2 / 2 * (1 - mpmath.mpf("1e-6")), mpmath.mpf("1e300"))) else "too small"

    def loss(value: float) -> mpmath.mpf:
        a, b = -value / mu + mu / 2, -value / mu - mu / 2
        return mpmath.ncdf(a) - mpmath.exp(value) * mpmath.ncdf(b)

    with mpmath.workdps(60 + int(max(0, float(mu)) ** 0.5) + 340):
        if loss(mpmath.mpf(epsilon) * (1 + mpmath.mpf("1e-9"))) > delta * (1 + 1e-9):
            return f"ε = {epsilon} is too small for μ = {mpmath.nstr(mu, 8)}"
        if epsilon > 1e-12 and loss(mpmath.mpf(epsilon) * (1 - mpmath.mpf("1e-5"))) < delta * (1 - 1e-6):
            return f"ε = {epsilon} is too large for μ = {mpmath.nstr(mu, 8)}"
    return ""
