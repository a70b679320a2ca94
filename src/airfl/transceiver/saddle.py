"""The semidefinite relaxation for many devices, from both sides: a first-order method that looks at all of them.

With unit directions d_i = h_i/‖h_i‖ and rewards c_i = min_j‖h_j‖²/‖h_i‖² the relaxation is the saddle point

    max min_i d_iᴴ W d_i / c_i  =  min λ_max(Σ l_i d_i d_iᴴ),    W ⪰ 0, tr W = 1,    l ≥ 0, Σ c_i l_i = 1:

any W gives a value from one side, any l one from the other, so the distance to the relaxation's value is measured, not
believed. W and l take turns with primal-dual steps (Chambolle & Pock 2011) whose length follows the last move and which
restart at their mean (as in PDLP, Applegate et al. 2021). A step is one m x m eigendecomposition and two products with
the devices at work: those with l_i > 0, of which m² are enough (Carathéodory), and the m² least reached of the others.
Every measurement is over all devices and says who comes next.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

#: Devices at work beside those that bind: this many times m², and never fewer than the second number.
AT_WORK, FEWEST = 1, 200
#: Steps between measurements, and measurements after which a restart is forced.
STEPS, PATIENCE = 10, 10
#: The search takes no c_i for smaller: that asks next to nothing of W, and what is divided by it does not overflow.
LEAST_REWARD = 1e-12
#: Down to this tolerance single precision can search; what is reported is always in double precision.
SINGLE = 1e-3
#: λ is divided by the largest eigenvalue and this hair more, for the rounding of that.
HAIR = 1.0 + 1e-10


@dataclass(frozen=True)
class Bracket:
    """The relaxation's value for one instance lies in [lower, upper]; ``lower`` is proven by the prices.

    Attributes:
        lower: Σ λ_i, a bound on ‖w‖².
        upper: tr W / min_i h_iᴴ W h_i.
        prices: λ_i ≥ 0 with Σ λ_i h_i h_iᴴ ⪯ I, [K].
        matrix: W ⪰ 0 with tr W = 1, [m, m]; as good as the relaxation's up to upper/lower.
    """

    lower: torch.Tensor
    upper: torch.Tensor
    prices: torch.Tensor
    matrix: torch.Tensor


@dataclass(frozen=True)
class _Devices:
    directions: torch.Tensor
    rewards: torch.Tensor

    def pick(self, chosen: torch.Tensor) -> _Devices:
        return _Devices(self.directions[chosen], self.rewards[chosen])

    def reach(self, matrix: torch.Tensor) -> torch.Tensor:
        """d_iᴴ W d_i."""
        heard = torch.view_as_real(self.directions @ matrix.mT.contiguous())
        return (heard * torch.view_as_real(self.directions)).sum(dim=(-1, -2))

    def load(self, weights: torch.Tensor) -> torch.Tensor:
        """Σ_i l_i d_i d_iᴴ."""
        return (self.directions.mT * weights) @ self.directions.conj()


@dataclass(frozen=True)
class _Point:
    """W and l with what follows from them; all four are linear, so points can be averaged."""

    matrix: torch.Tensor
    weights: torch.Tensor
    reach: torch.Tensor
    load: torch.Tensor

    def towards(self, other: _Point, share: float) -> _Point:
        return _Point(
            torch.lerp(self.matrix, other.matrix, share),
            torch.lerp(self.weights, other.weights, share),
            torch.lerp(self.reach, other.reach, share),
            torch.lerp(self.load, other.load, share),
        )


@dataclass(frozen=True)
class _Pace:
    """Length of a step, how it is split between l and W, and how many were taken."""

    length: float
    split: float
    count: int = 1


def bracket(channels: torch.Tensor, tolerance: float = 1e-3, iterations: int = 4000) -> Bracket:
    """Both sides of the relaxation for one instance [K, m], complex128, every h_i ≠ 0.

    Args:
        tolerance: stop when upper/lower − 1 is at most this.
        iterations: steps at most; the bracket is then as wide as it says.
    """
    length = torch.linalg.vector_norm(channels, dim=-1)
    everyone = _Devices(channels / length.unsqueeze(-1), (length.amin() / length).square())
    single = tolerance >= SINGLE
    rough = _Devices(
        everyone.directions.to(torch.complex64 if single else torch.complex128),
        everyone.rewards.clamp(min=LEAST_REWARD).to(torch.float32 if single else torch.float64),
    )
    matrix, weights = _search(rough, tolerance, iterations)
    weights = weights.double()
    at_work = weights.nonzero().squeeze(-1)
    largest = torch.linalg.eigvalsh(everyone.pick(at_work).load(weights[at_work]))[-1] * HAIR
    weights = weights / largest
    matrix = matrix.to(torch.complex128) / matrix.diagonal().real.double().sum()
    scale = length.amin().square()
    lower = (everyone.rewards * weights).sum() / scale
    upper = 1.0 / (everyone.reach(matrix) / everyone.rewards).amin() / scale
    return Bracket(lower, upper, weights / length.square(), matrix)


def _search(everyone: _Devices, tolerance: float, iterations: int) -> tuple[torch.Tensor, torch.Tensor]:
    """W [m, m] and l [K] whose values are ``tolerance`` apart, or the best found."""
    total, width = everyone.directions.shape
    rewards = everyone.rewards
    isotropic = torch.eye(width, dtype=everyone.directions.dtype, device=rewards.device) / width
    # The isotropic W reaches everybody, the weakest device alone proves 1/min‖h‖².
    matrix, most = isotropic, float((everyone.reach(isotropic) / rewards).amin())
    weights, least = (rewards == rewards.amax()).to(rewards.dtype), 1.0
    weights = weights / weights.sum()
    size = min(total, max(FEWEST, AT_WORK * width**2))
    chosen = rewards.topk(size).indices
    devices = everyone.pick(chosen)
    start = mean = point = _place(devices, isotropic, torch.ones_like(devices.rewards))
    pace, rounds, before = _Pace(1.0, _ratio(point.weights, point.matrix)), 0, float("inf")
    for _ in range(max(1, iterations // STEPS)):
        if least <= (1.0 + 0.99 * tolerance) * most:  # double precision may see a hair more
            break
        point, mean, pace = _walk(devices, point, mean, STEPS * rounds, pace)
        rounds += 1
        candidate, largest = _better(devices, point, mean)
        # A little of the isotropic W: rounding can then hide no strong device that W hardly reaches.
        safe = torch.lerp(candidate.matrix, isotropic, 0.1 * tolerance)
        reach = everyone.reach(safe) / rewards
        level = max(float(reach.amin()), LEAST_REWARD)
        if level > most:
            matrix, most = safe, level
        if largest < least:
            weights, least = torch.zeros_like(rewards).index_copy_(0, chosen, candidate.weights), largest
        if largest / level - 1.0 > 0.5 * before and rounds < PATIENCE:
            continue
        pace = _Pace(pace.length, _split(pace.split, start, candidate), pace.count)
        chosen, devices, point = _replaced(everyone, size, chosen, candidate, reach)
        start, mean, rounds, before = point, point, 0, largest / level - 1.0
    return matrix, weights


def _replaced(
    everyone: _Devices, size: int, chosen: torch.Tensor, candidate: _Point, reach: torch.Tensor
) -> tuple[torch.Tensor, _Devices, _Point]:
    """Put to work the devices with l_i > 0 and the ``size`` least reached of the others."""
    weights = torch.zeros_like(everyone.rewards).index_copy_(0, chosen, candidate.weights)
    binding = weights > 0
    size = min(len(weights), size + int(binding.sum()))
    chosen = reach.masked_fill(binding, -1.0).topk(size, largest=False).indices
    devices = everyone.pick(chosen)
    return chosen, devices, _place(devices, candidate.matrix, weights[chosen])


def _place(devices: _Devices, matrix: torch.Tensor, weights: torch.Tensor) -> _Point:
    weights = weights / (devices.rewards * weights).sum()
    return _Point(matrix, weights, devices.reach(matrix), devices.load(weights))


def _walk(devices: _Devices, point: _Point, mean: _Point, taken: int, pace: _Pace) -> tuple[_Point, _Point, _Pace]:
    """Take ``STEPS`` steps from a point; ``mean`` is that of the ``taken`` points so far."""
    for number in range(taken + 1, taken + STEPS + 1):
        point, pace = _step(devices, point, pace)
        mean = mean.towards(point, 1.0 / number)
    return point, mean, pace


def _step(devices: _Devices, point: _Point, pace: _Pace) -> tuple[_Point, _Pace]:
    """One step of W, then one of l that looks ahead; shorter until it is no longer than its own move allows."""
    while True:
        matrix = _to_spectrahedron(point.matrix + (pace.length / pace.split) * point.load)
        reach = devices.reach(matrix)
        ahead = point.weights - (pace.length * pace.split) * (2.0 * reach - point.reach)
        weights = _to_simplex(ahead, devices.rewards)
        moved = torch.linalg.vector_norm(matrix - point.matrix).square()
        shifted = torch.linalg.vector_norm(weights - point.weights).square()
        coupling = ((weights - point.weights) * (reach - point.reach)).sum().abs()
        allowed = float(((pace.split * moved + shifted / pace.split) / (2.0 * coupling)).nan_to_num(torch.inf))
        longer = pace.length * (1.0 + (pace.count + 1) ** -0.6)
        next_pace = _Pace(min(allowed * (1.0 - (pace.count + 1) ** -0.3), longer), pace.split, pace.count + 1)
        if pace.length <= allowed:
            return _Point(matrix, weights, reach, devices.load(weights)), next_pace
        pace = next_pace


def _better(devices: _Devices, *points: _Point) -> tuple[_Point, float]:
    """The point whose two values are closest as far as the devices at work tell, and λ_max of its load."""
    largest = torch.linalg.eigvalsh(torch.stack([point.load for point in points]))[:, -1].tolist()
    levels = [float((point.reach / devices.rewards).amin()) for point in points]
    best = max(range(len(points)), key=lambda i: levels[i] / largest[i])
    return points[best], largest[best]


def _split(split: float, start: _Point, end: _Point) -> float:
    """The geometric mean of the old split and of how far l moved for each unit that W moved."""
    ratio = _ratio(end.weights - start.weights, end.matrix - start.matrix)
    return (split * ratio) ** 0.5 if 1e-12 < ratio < 1e12 else split


def _ratio(weights: torch.Tensor, matrix: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(weights) / (torch.linalg.vector_norm(matrix) + 1e-30))


def _to_spectrahedron(matrix: torch.Tensor) -> torch.Tensor:
    """Nearest W ⪰ 0 with tr W = 1."""
    values, vectors = torch.linalg.eigh(matrix)
    kept = _to_simplex(values, torch.ones_like(values))
    nearest: torch.Tensor = (vectors * kept) @ vectors.mH
    return nearest


def _to_simplex(point: torch.Tensor, rewards: torch.Tensor) -> torch.Tensor:
    """Nearest l ≥ 0 with Σ c_i l_i = 1: l = max(x − θc, 0), where θ follows from the order of x_i/c_i."""
    order = (point / rewards).sort(descending=True)
    sorted_rewards, sorted_point = rewards[order.indices], point[order.indices]
    excess = (sorted_rewards * sorted_point).cumsum(0) - 1.0
    thetas = excess / sorted_rewards.square().cumsum(0)
    last = (order.values > thetas).sum().clamp(min=1) - 1
    return (point - thetas[last] * rewards).clamp(min=0.0)
