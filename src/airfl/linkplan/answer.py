"""From a complete set of quantities to everything the planner says about it.

A round is D symbols, one for each of d coordinates, or half as many where symbols are complex. At full power
π_t² = ρ_t·c²/(D·P·Λ), so the noise is v_t = π_t²σ²/2 and, with S = s·c (s = 1 for zero-out, 2 for
replace),

    μ² = Σ_t S²/v_t = 2 s² · D · T · SNR · E[1/ρ],        SNR = P·Λ_edge/σ².

The clip norm cancels: at full power a device is heard as loud as its power allows, whatever c is. A budget of μ* asks
for v = T·S²/μ*², so for a power lower by the factor β = μ*²/μ² where that is below one. Of several blocks the quietest
counts, and power is shared over the round: μ² grows by ``blocks.Several.gain``.

A curious base station hears the best heard device louder (``loudest``), and against it thermal noise alone is credited,
as in a run: the noise density says what share of σ² that is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from airfl.channel.noise import dbm_of_power, noise_power_w, thermal_power_w
from airfl.errors import InputError
from airfl.linkplan.accuracy import ALIGNMENT, CostModel, shipped
from airfl.linkplan.blocks import Several, check_grid, grid_of, several
from airfl.linkplan.combiners import FOLLOWED, law_of
from airfl.linkplan.feasibility import feasibility_of
from airfl.linkplan.law import Combining, Drawn
from airfl.linkplan.link import density_of
from airfl.linkplan.loudest import loudness
from airfl.linkplan.quantities import Quantities, word_of
from airfl.privacy import Ledger, gaussian_epsilon, gaussian_mu, reach
from airfl.privacy.ratios import squared_sum

#: What rounding may do to μ²: a solved link sits on the threshold, and counts as one that meets its target.
ROUNDING = 1e-9
#: The cost in accuracy at which the smallest number of devices is stated: one point.
ONE_POINT = 0.01


@dataclass(frozen=True, kw_only=True)
class Answer:
    """All that follows. None where a quantity it needs is not known.

    Attributes:
        epsilon: free ε by observer: everybody at full power, no budget; None: no finite one, or not known (base station
            of a plan from a noise variance).
        epsilon_range: free ε of a drop that is one standard deviation luckier or unluckier than the mean; None where
            there are no drops.
        epsilon_kept: ε by observer after the back-off that the target asks for.
        margin_db: by how much the link is below (positive) or above the threshold where free ε equals the target.
        table_error: relative standard error of the mean over combiners that all this rests on.
        octaves_beyond: how many doublings of K beyond the measured combiners that mean was extrapolated; 0: it was not.
        drops: how many were drawn for the mean over combiners; None: it is from the tables.
        rounds_followed: over how many drawn rounds the base station follows devices where those are fewer than they
            should be; None: they are not.
        snr_db, threshold_db: P·Λ_edge/σ² now and at the threshold.
        power_w, power_dbm: P.
        noise_var: v after the back-off, per real coordinate of the sum, of the quietest block where there are several;
            interference comes on top.
        noise_to_update, free_noise_to_update: √(d·v)/K over the norm of the averaged update, with and without the
            target.
        residual: z of ``accuracy``.
        accuracy_cost: predicted loss of accuracy.
        tolerated: noise-to-update ratio at which the prediction costs one point (or as asked).
        smallest_devices: n that meets the target at that ratio.
        energy_j, mean_energy_j: of a round, of the device that needs most and on average over devices, at full clip.
        airtime_s: of a round: d symbols with one coordinate each, or half as many with two.
        solved_for: the quantity that was asked for, and its value in ``quantities``.
        feasibility: what a radio makes of it, by name (``linkplan.feasibility``).
        not_at: a larger number of devices than the solved one that misses the target all the same.
        is_default_ratio: whether ``tolerated`` was not asked for.
    """

    quantities: Quantities
    epsilon: dict[str, float | None]
    epsilon_range: tuple[float, float] | None
    epsilon_kept: dict[str, float | None]
    is_perk: bool
    margin_db: float
    table_error: float | None
    octaves_beyond: float | None
    drops: int | None = None
    rounds_followed: int | None = None
    snr_db: float | None
    threshold_db: float | None
    power_w: float | None = None
    power_dbm: float | None = None
    noise_var: float
    noise_to_update: float | None = None
    free_noise_to_update: float | None = None
    residual: float | None = None
    accuracy_cost: float | None = None
    tolerated: float | None = None
    smallest_devices: int | None = None
    energy_j: float | None
    mean_energy_j: float | None
    airtime_s: float | None
    feasibility: dict[str, Any] | None = None
    solved_for: str | None = None
    not_at: int | None = None
    is_default_ratio: bool = True

    def __repr__(self) -> str:
        """The plan in sentences, as ``airfl plan`` says them."""
        from airfl.linkplan.show import plan_text

        return plan_text(self)

    def _repr_html_(self) -> str:
        from airfl.linkplan.show import plan_html

        return plan_html(self)

    @property
    def backoff_db(self) -> float:
        """How much power is held back to keep the target."""
        return max(0.0, -self.margin_db)

    @property
    def summary(self) -> dict[str, Any]:
        """The object that ``airfl plan --json`` prints."""
        q, name = self.quantities, self.solved_for
        plain = {
            key: value if not isinstance(value, float) or math.isfinite(value) else None
            for key, value in vars(self).items()
            if key not in ("quantities", "solved_for", "not_at", "is_default_ratio")
        }
        solved = None if name is None else {"name": word_of(name), "value": getattr(q, name)}
        if solved is not None and self.not_at is not None:
            solved["not_at"] = self.not_at
        return {**plain, "backoff_db": self.backoff_db, "solved_for": solved, "quantities": vars(q)}


def squared_mu(q: Quantities, law: Combining | None = None) -> float:
    """μ² of the whole run at full power, for an observer of every round's model."""
    far = reach(q.relation)
    assert q.rounds is not None
    if q.noise_var is not None:
        assert q.clip_norm is not None
        return (far * q.clip_norm) ** 2 * q.rounds / q.noise_var
    assert q.antennas is not None
    symbols = q.symbols_a_round
    assert symbols is not None
    law = law or law_of(q)
    assert law is not None
    return 2.0 * far**2 * symbols * q.rounds * q.snr * law.inverse_norm2 * several(q).gain


def meets(mu2: float, goal: float) -> bool:
    """Whether μ² is within the target's, but for rounding."""
    return mu2 <= goal * (1.0 + ROUNDING)


def free_epsilon(q: Quantities, law: Combining | None = None) -> float:
    """Free ε for anyone who sees the models; exact for the noise that is assumed."""
    return gaussian_epsilon(q.delta, math.sqrt(squared_mu(q, law)))


def noise_of(ledger: Ledger) -> float:
    """The one noise variance that gives T rounds the same ε as a ledger's different ones: T/Σ(1/v_t) at unit gains."""
    total = squared_sum(ledger, "zero-out")
    return ledger.events[0].clip_norm ** 2 * len(ledger.events) / total


def answer(
    q: Quantities,
    solved_for: str | None = None,
    tolerated: float | None = None,
    model: CostModel | None = None,
    law: Combining | None = None,
) -> Answer:
    """Everything about a complete set of quantities.

    Args:
        solved_for: which of them was solved for.
        tolerated: the noise-to-update ratio that is acceptable; default: where the prediction costs one point.
        model: of the cost in accuracy; default: what is shipped for this number of parameters.
        law: the mean over combiners; default: the tables'.
    """
    if tolerated is not None and not 0.0 < tolerated < math.inf:
        raise InputError(f"a tolerated noise-to-update ratio must be positive and finite; got {tolerated}")
    assert q.epsilon is not None
    assert q.rounds is not None
    check_grid(q)
    law = law or law_of(q)
    mu2, blocks = squared_mu(q, law), several(q)
    target2 = gaussian_mu(q.epsilon, q.delta) ** 2
    is_perk = solved_for == "epsilon" or meets(mu2, target2)  # a solved ε is what there is
    margin_db = 0.0 if solved_for == "epsilon" else 10.0 * math.log10(target2 / mu2)
    margin_db = max(0.0, margin_db) if is_perk else margin_db
    backoff = 1.0 if is_perk else target2 / mu2
    free_var = q.rounds * (reach(q.relation) * (q.clip_norm or 1.0)) ** 2 / mu2
    snr_db = None if law is None else 10.0 * math.log10(q.snr)
    ratios = _ratios(q, blocks, free_var, backoff, target2, tolerated, model or shipped(q.parameters))
    rate, symbols = q.symbols_per_second, q.symbols_a_round
    airtime = None if rate is None or symbols is None else symbols / rate
    power = None if law is None else q.limit_w
    energy = None if airtime is None or power is None else power * backoff * airtime
    if law is not None:  # who needs little in one block has none of it taken away by others
        law = replace(law, mean_power=min(1.0, law.mean_power / blocks.load))
    return Answer(
        quantities=q,
        epsilon=_by_observer(q, law, mu2),
        epsilon_range=_range(q, law, mu2),
        epsilon_kept=_by_observer(q, law, mu2 * backoff),
        is_perk=is_perk,
        margin_db=margin_db,
        table_error=None if law is None else law.standard_error,
        octaves_beyond=None if law is None else law.octaves_beyond,
        drops=law.drops if isinstance(law, Drawn) else None,
        rounds_followed=_few_rounds(q, law),
        snr_db=snr_db,
        threshold_db=None if snr_db is None else snr_db + margin_db,
        power_w=power,
        power_dbm=None if power is None else dbm_of_power(power),
        noise_var=free_var / backoff,
        energy_j=energy,
        mean_energy_j=None if energy is None or law is None else energy * law.mean_power,
        airtime_s=airtime,
        feasibility=None if law is None else feasibility_of(q, law, mu2, target2, backoff),
        solved_for=solved_for,
        is_default_ratio=tolerated is None,
        **ratios,
    )


def _few_rounds(q: Quantities, law: Combining | None) -> int | None:
    """Over how many rounds devices were followed, if that is fewer than luck takes to average out."""
    followed = law.followed if isinstance(law, Drawn) else None
    return None if followed is None or followed >= min(q.rounds or 1, FOLLOWED) else followed


def _epsilon_at(q: Quantities, mu2: float) -> float | None:
    found = gaussian_epsilon(q.delta, math.sqrt(mu2))
    return found if math.isfinite(found) else None


def _by_observer(q: Quantities, law: Combining | None, mu2: float) -> dict[str, float | None]:
    """ε by observer, for a given μ² of anyone who sees the models."""
    seen: dict[str, float | None] = dict.fromkeys(("model", "models"), _epsilon_at(q, mu2))
    seen["base-station"] = None
    if law is not None:
        # Of its receiver's noise what a better one could do without does not count against a base station.
        uncredited = max(1.0, noise_power_w(density_of(q), 1.0) / thermal_power_w(1.0))
        heard = (
            law.loudness
            if isinstance(law, Drawn)
            else loudness(law, q.layout, q.devices or 1, q.active, q.antennas or 1, q.rounds or 1, _count(q))
        )
        seen["base-station"] = _epsilon_at(q, mu2 * max(1.0, uncredited * heard))  # it sees the models too
    return seen


def _count(q: Quantities) -> int:
    """B; one where nobody knows."""
    grid = grid_of(q)
    return 1 if grid is None else grid.count


def _range(q: Quantities, law: Combining | None, mu2: float) -> tuple[float, float] | None:
    """Free ε where places are luckier and unluckier; None where all places are the same."""
    if law is None or (q.layout == "ring" and not isinstance(law, Drawn)):
        return None
    low, high = (gaussian_epsilon(q.delta, math.sqrt(mu2) * math.exp(s * law.drop_spread / 2)) for s in (-1, 1))
    return low, high


def against_update(q: Quantities, noise_var: float) -> tuple[float, float]:
    """√(d·v)/K over the norm of the averaged update, in one round, and the residual noise z of ``accuracy``.

    The prediction was fitted with one alignment for all, so z has that, whatever is stated here.
    """
    assert q.parameters is not None
    assert q.rounds is not None
    clip = q.clip_norm or 1.0
    update = q.update_norm if q.update_norm is not None else q.alignment * clip
    ratio = math.sqrt(q.parameters * noise_var) / (q.active * update)
    return ratio, math.sqrt(noise_var / q.rounds) / (q.active * ALIGNMENT * clip)


def _ratios(
    q: Quantities,
    blocks: Several,
    free_var: float,
    backoff: float,
    target2: float,
    tolerated: float | None,
    model: CostModel,
) -> dict[str, Any]:
    """Noise against update, what that predicts, and how many devices a tolerated ratio takes, where known."""
    if q.devices is None or q.parameters is None or q.rounds is None:
        return {}
    free = q.disturbance * blocks.heard(1.0)  # interference disturbs what is learnt, and hides nobody
    heard = q.disturbance * blocks.heard(backoff)
    ratio, residual = against_update(q, heard * free_var / backoff)
    if tolerated is None:
        tolerated = model.residual_for(ONE_POINT) * ratio / residual
    asked = q.rounds * (reach(q.relation) * (q.clip_norm or 1.0)) ** 2 / target2
    needed = q.active * against_update(q, heard * asked)[0] / tolerated
    return {
        "noise_to_update": ratio,
        "free_noise_to_update": against_update(q, free * free_var)[0],
        "residual": residual,
        "accuracy_cost": model.cost(residual),
        "tolerated": tolerated,
        "smallest_devices": max(1, math.ceil(needed / q.participation * (1.0 - 1e-12))),
    }
