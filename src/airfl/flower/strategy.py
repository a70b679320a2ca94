"""A Flower strategy whose sum is received over the air."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version
from logging import INFO, WARNING
from pathlib import Path
from typing import Literal

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.common import log
from flwr.serverapp import Grid
from flwr.serverapp.exception import PrivacyBudgetExhausted
from flwr.serverapp.strategy import Result, Strategy

from airfl.config import Config, read
from airfl.errors import DivergedError, InputError
from airfl.flower.accountant import LAWS, NEIGHBOURS, AirAccountant, AirPrivacyConfig
from airfl.flower.course import Course
from airfl.flower.layout import Layout
from airfl.flower.meeting import meet, settled
from airfl.flower.replies import Question, read_replies
from airfl.privacy import BudgetError, Ledger
from airfl.runs import prepare_folder
from airfl.runs.result import Status
from airfl.runs.store import keep_ledgers
from airfl.traits import SCHEMES, scheme_traits
from airfl.wording import OBSERVER_AGAINST, number, rounded_up

#: Of ``fixedclipping_mod``, which clips θ_i − θ on the node.
KEY_CLIPPING_NORM = "clipping_norm"
Evaluation = Callable[[int, ArrayRecord], MetricRecord | None]


class OverTheAir(Strategy):
    """Federated learning over the air: any scheme, channel, combiner and budget of an airfl configuration.

    θ ← θ − (η_g η/K) (Σ g_i clip_c(Δ_i) + N(0, v I)), Δ_i = (θ − θ_i)/η, for models θ_i that nodes return. Nodes have
    equal weights, whatever they report; K is fixed before anyone is drawn. Who takes part is airfl's draw, from the
    configuration's seed, and so are channels and noise: the ledger is that of ``airfl run`` with the same
    configuration. Clipping happens here too, so that a node that does not clip changes nothing.

    Args:
        config: a configuration, the name of a preset, or a TOML file.
        scheme: which of its schemes; default: the first that keeps a budget, else the first.
        trial: which repetition: positions, fading, participation and noise follow from it.
        max_epsilon: training stops before the round that would exceed it. Default: the configuration's budget; where
            the scheme keeps it, this can only make it smaller. Infinite: a scheme without a promise is not stopped.
        ledger: of earlier rounds on the same data, whose ε counts; the plan goes on after them.
        save_to: a folder for the run, as ``airfl run --out`` writes it, kept up to date after every round.
        when_exhausted: "raise" ``PrivacyBudgetExhausted``, or "return" what is there. ``result`` has it either way.
        evaluation: a strategy that evaluates on nodes; what it reports is outside every ε.
        nodes: node IDs of devices 0, 1, …; default: as many as `system.num_devices` says, in the order of their IDs;
            "all": those that are there at the start, and their number is `system.num_devices`.
        wait_s: how long to wait until there are as many nodes as devices.

    Attributes:
        result: what ``start`` returns, also where it was stopped.
        course: the run; None before it starts.
    """

    def __init__(
        self,
        config: Config | str | Path,
        *,
        scheme: str | None = None,
        trial: int = 0,
        max_epsilon: float | None = None,
        ledger: Ledger | None = None,
        save_to: str | Path | None = None,
        when_exhausted: str = "raise",
        evaluation: Strategy | None = None,
        nodes: Sequence[int] | Literal["all"] | None = None,
        wait_s: float = 300.0,
    ) -> None:
        self.config = config if isinstance(config, Config) else read(str(config))
        self.scheme = _scheme_of(self.config, scheme)
        if max_epsilon is not None and not max_epsilon > 0.0:
            raise InputError(f"`max_epsilon` must be positive; got {max_epsilon}")
        if when_exhausted not in ("raise", "return"):
            raise InputError(f'`when_exhausted` must be "raise" or "return"; got {when_exhausted!r}')
        if nodes not in (None, "all") and len(set(nodes)) != self.config.system.num_devices:
            raise InputError(f"`nodes` must name {self.config.system.num_devices} different nodes, one per device")
        if trial < 0:
            raise InputError(f"`trial` must be 0, 1, 2, ...; got {trial}")
        self.trial, self.max_epsilon, self.when_exhausted = trial, max_epsilon, when_exhausted
        self.folder = None if save_to is None else prepare_folder(save_to)
        self.evaluation, self.wait_s = evaluation, wait_s
        self.result = Result()
        self.course: Course | None = None
        self._before, self._everyone = ledger, nodes == "all"
        self._named = None if nodes is None or nodes == "all" else list(nodes)
        self._nodes: dict[int, int] = {}
        self._layout: Layout | None = None
        self._question: Question | None = None

    @property
    def accountant(self) -> AirAccountant:
        """What was spent so far, in Flower's terms."""
        course = self._started()
        promise = course.schedule.promise
        relation = next(theirs for theirs, ours in NEIGHBOURS.items() if ours == promise.neighbours)
        method = next((theirs for theirs, ours in LAWS.items() if ours == promise.template.sampling.law), None)
        if method is None:
            raise InputError(
                f"Flower has no word for how scheme `{self.scheme}` draws nodes, with replacement; ask "
                "`strategy.course.epsilon()` and `strategy.course.ledger` instead"
            )
        limit = None if math.isinf(course.limit) else course.limit
        size = self.config.system.num_devices
        config = AirPrivacyConfig(promise.delta, size, relation, method, limit)
        return AirAccountant(config, promise.accountant, promise.observer, course.ledger)

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int | None = None,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Evaluation | None = None,
    ) -> Result:
        """Train, as ``Strategy.start``; the model that is returned has passed the check of its ledger.

        Args:
            num_rounds: default: those that the configuration plans and that are left. A scheme that keeps a budget
                stops before the first round beyond its plan.
        """
        if self.course is not None:
            raise InputError("this strategy has run already; make a new one, with `ledger` if the data are the same")
        if self._everyone:
            self._named = settled(grid, self.wait_s)
            self.config = self.config.replace({"system.num_devices": len(self._named)})
        course = self._open(initial_arrays, num_rounds)
        left = max(1, course.config.system.rounds - course.round)
        evaluate = None if evaluate_fn is None else self._watched(evaluate_fn)
        self.result = Result(arrays=initial_arrays)
        status: Status = "interrupted"
        rounds = left if num_rounds is None else num_rounds
        try:
            super().start(grid, initial_arrays, rounds, timeout, train_config, evaluate_config, evaluate)
            status = "done"
        except DivergedError as error:
            course.message, status = str(error), "diverged"
            raise
        except PrivacyBudgetExhausted as stop:
            course.message = str(stop)
            status = "done" if course.excess() is None else "refused"
            log(INFO, "%s", stop)
            if self.when_exhausted == "raise":
                raise
        finally:
            self._conclude(status)
        return self.result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask the devices that airfl draws; ``PrivacyBudgetExhausted`` where the round would exceed the budget."""
        course = self.course or self._open(arrays, None)
        refusal = course.refusal()
        if refusal is not None:
            raise PrivacyBudgetExhausted(f"training stops before round {server_round}: {refusal}")
        layout, learning = self._layout_of(), course.config.learning
        self._nodes = self._nodes or meet(grid, self.config.system.num_devices, self._named, self.wait_s)
        devices = {self._nodes[device]: device for device in course.asked().tolist()}
        sent = layout.vector(arrays)
        self._question = Question(f"airfl-{course.round}", devices, sent, learning.learning_rate)
        told = {
            "lr": learning.learning_rate,
            "batch-size": learning.batch_size,
            **({"local-steps": learning.local_steps} if learning.local_steps else {}),
            **({"local-epochs": learning.local_epochs} if learning.local_epochs else {}),
            **config,
            "server-round": server_round,
            KEY_CLIPPING_NORM: learning.learning_rate * course.clip_norm,
        }
        here = set(grid.get_node_ids())
        return [
            Message(
                RecordDict({"arrays": arrays, "config": ConfigRecord({**told, "device": device})}),
                node,
                MessageType.TRAIN,
                group_id=self._question.group,
            )
            for node, device in devices.items()
            if node in here
        ]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Send the updates through the air: the new model, and ε and the air in numbers."""
        question, course, layout = self._question, self._started(), self._layout_of()
        if question is None:
            raise InputError("`aggregate_train` takes the answers to `configure_train`, which has to come first")
        self._question = None
        answers = read_replies(question, replies, layout)
        if words := answers.in_words():
            log(WARNING, "of %s nodes asked: %s; they count as zero", len(question.devices), words)
        try:
            course.hear(question.sent.unsqueeze(0), answers.updates, answers.silent)
        except BudgetError as error:
            raise PrivacyBudgetExhausted(
                f"nodes that hide others were missing in round {server_round}: {error}"
            ) from None
        finally:
            self._keep_ledger()
        arrays, metrics = layout.record(course.state.models[0]), MetricRecord(course.metrics())
        self.result.arrays, self.result.train_metrics_clientapp[server_round] = arrays, metrics
        return arrays, metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Nobody is asked, unless a strategy for evaluation was given: what nodes report, no ε covers."""
        return [] if self.evaluation is None else self.evaluation.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """As the strategy for evaluation does it."""
        found = None if self.evaluation is None else self.evaluation.aggregate_evaluate(server_round, replies)
        if found is not None:
            self.result.evaluate_metrics_clientapp[server_round] = found
        return found

    def summary(self) -> None:
        """Log what is run, and what is promised to whom."""
        course = self._started()
        promise, system = course.schedule.promise, course.config.system
        share = f"{system.participation:g} of them drawn each round ({system.sampling})"
        drawn = "all take part" if system.everyone else share
        who = OBSERVER_AGAINST[promise.observer]
        log(INFO, "\t├──> Scheme: %s (%s)", course.scheme.name, course.scheme.sentence)
        log(INFO, "\t├──> Nodes: %s; %s; equal weights", system.num_devices, drawn)
        log(INFO, "\t├──> Rounds planned: %s", system.rounds)
        if math.isinf(course.limit):
            log(INFO, "\t└──> Privacy: no limit; ε is reported by accountant `%s`", promise.accountant)
        else:
            log(
                INFO,
                "\t└──> Privacy: ε ≤ %s at δ = %s (%s), against %s, by accountant `%s`",
                *(rounded_up(course.limit), number(promise.delta), promise.neighbours, who, promise.accountant),
            )

    def _open(self, arrays: ArrayRecord, rounds: int | None) -> Course:
        """Plan all rounds."""
        layout = Layout.of(arrays)
        before = self._before or Ledger()
        config, after = self.config, before.events[-1].round + 1 if before.events else 0
        if not _promises(self.scheme) and rounds is not None and after + rounds > config.system.rounds:
            config = config.replace({"system.rounds": after + rounds})  # nothing was planned ahead
        log(INFO, "planning %s rounds of %s devices over the air", config.system.rounds, config.system.num_devices)
        course = Course(config, self.scheme, self.trial, layout, layout.vector(arrays))
        course.go_on_from(before)
        course.keep_within(self.max_epsilon)
        self.course, self._layout = course, layout
        return course

    def _watched(self, evaluate: Evaluation) -> Evaluation:
        """The same test, of the model that would be released, written down."""

        def test(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
            course = self._started()
            mean = None if server_round == 0 else course.state.average
            found = evaluate(server_round, arrays if mean is None else self._layout_of().record(mean[0]))
            if found is not None:
                self.result.evaluate_metrics_serverapp[server_round] = found
                if server_round > 0:
                    course.tested(_value(found, "accuracy"), _value(found, "loss"))
            return found

        return test

    def _conclude(self, status: Status) -> None:
        """Hand on the model if its ledger keeps the budget, and write the run."""
        course = self._started()
        if status == "refused":
            self.result.arrays = ArrayRecord()
        elif status == "done" and course.records:
            self.result.arrays = self._layout_of().record(course.released())
        if self.folder is not None:
            course.keep(self.folder, status, {"runtime": f"flwr {version('flwr')}"})

    def _keep_ledger(self) -> None:
        """Before the model of a round goes anywhere."""
        course = self._started()
        if self.folder is not None:
            promise = course.schedule.promise
            keep_ledgers(self.folder, promise.delta, promise.neighbours, {self.scheme: course.state.ledgers})

    def _started(self) -> Course:
        if self.course is None:
            raise InputError("this strategy has not started; its ledger begins with `start`")
        return self.course

    def _layout_of(self) -> Layout:
        assert self._layout is not None
        return self._layout


def _scheme_of(config: Config, wanted: str | None) -> str:
    names = config.scheme.names
    if wanted is not None and wanted not in names:
        config.replace({"scheme.names": [wanted]})  # refuses what is no scheme, and what does not go with the rest
        return wanted
    return wanted or next((name for name in names if _promises(name)), names[0])


def _promises(scheme: str) -> bool:
    """Whether a scheme keeps a budget, as far as its name tells."""
    return scheme not in SCHEMES or scheme_traits(scheme).budget


def _value(metrics: MetricRecord, name: str) -> float:
    found = metrics.get(name)
    return float(found) if isinstance(found, int | float) else math.nan
