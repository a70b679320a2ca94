"""Flower's ``PrivacyAccountant`` over our ledger and accountants."""

from __future__ import annotations

from typing import Any

from flwr.serverapp import GaussianPrivacyEvent, NeighboringRelation, PrivacyConfig, PrivacySpent, SamplingMethod

from airfl.privacy import (
    Ledger,
    Neighbours,
    Observer,
    PrivacyError,
    RoundEvent,
    Sampling,
    make_accountant,
)
from airfl.privacy.events import SamplingLaw, check_delta, check_epsilon, require

#: Flower's words for ours. Its add-or-remove is our zero-out: one contribution of length c is there, or is not.
NEIGHBOURS: dict[NeighboringRelation, Neighbours] = {
    NeighboringRelation.ADD_OR_REMOVE_ONE: "zero-out",
    NeighboringRelation.REPLACE_ONE: "replace",
}
LAWS: dict[SamplingMethod, SamplingLaw] = {
    SamplingMethod.NO_AMPLIFICATION: "all",
    SamplingMethod.POISSON: "poisson",
    SamplingMethod.WITHOUT_REPLACEMENT: "without-replacement",
}
STATE_FORMAT = "airfl-flower-accountant/1"


class AirPrivacyConfig(PrivacyConfig):
    """Flower's ``PrivacyConfig`` without its list of what goes together, which is that of its own accountant."""

    def __post_init__(self) -> None:
        """Check each of them by itself."""
        check_delta(self.target_delta)
        size, limit = self.population_size, self.max_epsilon
        require(size >= 1, f"`population_size` must be at least 1; got {size}")
        require(limit is None or limit > 0.0, f"`max_epsilon` must be positive; got {limit}")


class AirAccountant:
    """Books Gaussian releases in an airfl ledger, and answers as Flower's ``PrivacyAccountant`` does.

    Flower's event has clip norm 1 and noise of standard deviation z on the sum. Under add-or-remove-one a device moves
    the sum by 1; under replace-one by 2, which Flower's own accountant leaves to the reader.

    Args:
        config: δ, how many nodes there are, who the neighbours are, how nodes are drawn, and the largest ε.
        accountant: whose arithmetic; default: ``sampled`` where nodes are drawn, else ``gaussian``, which is exact.
        observer: against whom, among those who see models.
        ledger: to go on from.
    """

    def __init__(
        self,
        config: PrivacyConfig,
        accountant: str | None = None,
        observer: Observer = "model",
        ledger: Ledger | None = None,
    ) -> None:
        self._config = config
        drawn = config.sampling_method is not SamplingMethod.NO_AMPLIFICATION
        self.accountant = accountant or ("sampled" if drawn else "gaussian")
        self.observer, self.neighbours = observer, NEIGHBOURS[config.neighboring_relation]
        self.ledger = ledger or Ledger()
        make_accountant(self.accountant, self.ledger, self.neighbours, observer)  # bad names are refused here

    @property
    def config(self) -> PrivacyConfig:
        """The promise in Flower's words."""
        return self._config

    @property
    def num_releases(self) -> int:
        """How many rounds are booked."""
        return len(self.ledger.events)

    def compose(self, event: GaussianPrivacyEvent, count: int = 1) -> None:
        """Book a release ``count`` times."""
        self.ledger = self._after(event, count)

    def get_epsilon(self, delta: float) -> float:
        """ε at this δ of all releases so far."""
        check_delta(delta)
        return self._epsilon_of(self.ledger, delta)

    def get_delta(self, epsilon: float) -> float:
        """δ at this ε of all releases so far."""
        check_epsilon(epsilon)
        return make_accountant(self.accountant, self.ledger, self.neighbours, self.observer).delta(epsilon)

    def get_privacy_spent(self, delta: float | None = None) -> PrivacySpent:
        """The same in Flower's words, with the arithmetic that was used."""
        wanted = self._config.target_delta if delta is None else delta
        return PrivacySpent(self.get_epsilon(wanted), wanted, self.num_releases, f"airfl {self.accountant}")

    def would_exceed(self, event: GaussianPrivacyEvent, max_epsilon: float | None = None, count: int = 1) -> bool:
        """Whether booking a release would exceed the largest ε; nothing is booked."""
        limit = self._config.max_epsilon if max_epsilon is None else max_epsilon
        if limit is None:
            raise PrivacyError("nothing says how large ε may become; give `max_epsilon` here or in the configuration")
        require(limit > 0.0, f"`max_epsilon` must be positive; got {limit}")
        return not self._epsilon_of(self._after(event, count), self._config.target_delta) <= limit

    def state_dict(self) -> dict[str, object]:
        """Plain data that ``load_state_dict`` reads back."""
        return {
            "format": STATE_FORMAT,
            "config": _plain(self._config),
            "accountant": self.accountant,
            "observer": self.observer,
            "ledger": self.ledger.to_mapping(),
        }

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Go on from a ``state_dict`` of the same promise; another one, or a damaged ledger, is refused."""
        require(state.get("format") == STATE_FORMAT, "this is not the state of an AirAccountant of this version")
        asked = {"config": _plain(self._config), "accountant": self.accountant, "observer": self.observer}
        for name, own in asked.items():
            require(state.get(name) == own, f"the state was kept with another `{name}`: {state.get(name)}, not {own}")
        self.ledger = Ledger.from_mapping(state.get("ledger"))

    def _after(self, event: GaussianPrivacyEvent, count: int) -> Ledger:
        require(isinstance(count, int) and count >= 1, f"`count` must be at least 1; got {count}")
        known = self._config.population_size
        require(event.population_size == known, f"the event is of {event.population_size} nodes, and there are {known}")
        require(1e-70 <= event.noise_multiplier <= 1e70, "`noise_multiplier` must be 1e-70 to 1e70")
        law = LAWS[self._config.sampling_method]
        senders = known if law == "all" else event.sample_size
        ledger = self.ledger
        for _ in range(count):
            ledger = ledger.append(
                RoundEvent(
                    round=ledger.events[-1].round + 1 if ledger.events else 0,
                    clip_norm=1.0,
                    gain_bound=1.0,
                    noise_var=event.noise_multiplier**2,
                    noise_source="artificial",
                    noise_power=None,
                    sampling=Sampling("all" if senders == known else law, known, senders),
                    update_factor=1.0 / event.sample_size,
                    hides_participation=law != "all",
                )
            )
        return ledger

    def _epsilon_of(self, ledger: Ledger, delta: float) -> float:
        return make_accountant(self.accountant, ledger, self.neighbours, self.observer).epsilon(delta)


def _plain(config: PrivacyConfig) -> dict[str, Any]:
    return {
        "target_delta": config.target_delta,
        "population_size": config.population_size,
        "neighboring_relation": config.neighboring_relation.value,
        "sampling_method": config.sampling_method.value,
        "max_epsilon": config.max_epsilon,
    }
