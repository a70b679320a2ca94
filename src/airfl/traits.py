"""What parts work with: the axes of a configuration, and what each part says of them.

An axis is a way in which a run can differ from the plainest one. A part works with the axes that it names and refuses
all others, so a new axis is refused by every part until somebody has worked it out. For parts of ours this is the only
copy, which their classes read; loads nothing heavy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum, auto

#: Whom a promise can be about, and those of them who see signals.
OBSERVERS = ("model", "models", "base-station", "eavesdropper", "everything")
SEEING = OBSERVERS[2:]
#: What to do about most of what does not go together.
LEAVE_OUT = "leave one of them out"


class Axis(StrEnum):
    """A way in which a run can differ from the plainest one."""

    CSI_ERROR = auto()
    NOT_RAYLEIGH = auto()
    CORRELATED = auto()
    TRACE = auto()
    COMPLEX = auto()
    BLOCKS = auto()
    BANDS = auto()
    ROTATION = auto()
    PHASE_ERROR = auto()
    TIMING = auto()
    CLIPPING = auto()
    ADC = auto()
    INTERFERENCE = auto()
    SCALAR_UPLINK = auto()
    FRESH_FADING = auto()
    STANDING_FADING = auto()
    FIXED_SAMPLING = auto()
    VARYING_SAMPLING = auto()
    ALL_COLUMNS = auto()
    SELECTION = auto()
    ALIGNED = auto()
    BEST_SHARE = auto()
    DROPOUT = auto()
    EAVESDROPPER = auto()
    SEEING_OBSERVER = auto()
    QUADRATURE = auto()
    DOMAIN = auto()
    CONVERGENT = auto()
    PAPER = auto()
    SAMPLED = auto()
    STANDARDISED = auto()


@dataclass(frozen=True)
class Refusal:
    """Axes that a part does not work with, together.

    Attributes:
        because: what is said between the part's name and the keys that are in its way.
        instead: what to do.
    """

    axes: frozenset[Axis]
    because: str
    instead: str = LEAVE_OUT


@dataclass(frozen=True)
class Traits:
    """What a part works with, and what else has to be known of it before it is loaded.

    Attributes:
        works_with: axes that it has been worked out for.
        refuses: those that it has reasons to refuse, single ones and some that are fine apart.
        over_air: whether there is a radio link.
        budget: whether it needs a privacy budget.
        keeps: whether it keeps one where one is given, and goes without where none is.
        knows_channel: whether devices know their channels, or are told the scalar that follows from them.
        remembers: whether devices keep a vector as long as the model from round to round.
        symbols: how many real symbols of every device a round takes; empty without a radio link.
        shared: what devices share beforehand; empty: nothing.
        protects_from: who of those that see signals a promise can be about.
        chooses_cover: whether ``scheme.cover`` says what devices add.
    """

    works_with: frozenset[Axis] = frozenset()
    refuses: tuple[Refusal, ...] = ()
    over_air: bool = True
    budget: bool = False
    keeps: bool = False
    knows_channel: bool = True
    remembers: bool = False
    symbols: str = "one per coordinate"
    shared: str = ""
    protects_from: tuple[str, ...] = ()
    chooses_cover: bool = False

    def __or__(self, other: Traits) -> Traits:
        """Of two parts of one scheme: what both work with, and what either needs."""
        return Traits(
            self.works_with & other.works_with,
            self.refuses + other.refuses,
            self.over_air and other.over_air,
            self.budget or other.budget,
            self.keeps or other.keeps,
            self.knows_channel and other.knows_channel,
            self.remembers or other.remembers,
            self.symbols and other.symbols,
            self.shared or other.shared,
            self.protects_from or other.protects_from,
            self.chooses_cover or other.chooses_cover,
        )


def conflicts(parts: Sequence[tuple[str, Traits]], on: Mapping[Axis, str]) -> list[str]:
    """What named parts, and the axes that are on, cannot be together: a whole sentence each."""
    return list(
        dict.fromkeys(sentence for name, traits in [*parts, *_features(on)] for sentence in _of(name, traits, on))
    )


def _features(on: Mapping[Axis, str]) -> Iterator[tuple[str, Traits]]:
    return ((on[axis], replace(traits, works_with=frozenset(on))) for axis, traits in FEATURES.items() if axis in on)


def _of(name: str, traits: Traits, on: Mapping[Axis, str]) -> Iterator[str]:
    """A sentence for each reason, with all single axes that it is against."""
    reasons: dict[tuple[str, str], list[str]] = {}
    explained: set[Axis] = set()
    for refusal in traits.refuses:
        explained |= refusal.axes if len(refusal.axes) == 1 else set()
        if refusal.axes <= on.keys():
            together = " and ".join(on[axis] for axis in Axis if axis in refusal.axes)
            reasons.setdefault((refusal.because, refusal.instead), []).append(together)
    for axis, keys in on.items():
        if axis not in traits.works_with and axis not in explained:
            reasons.setdefault(("has not been worked out with", LEAVE_OUT), []).append(keys)
    for (because, instead), found in reasons.items():
        yield f"{name} {because} {', or '.join(dict.fromkeys(found))}; {instead}"


def _each(because: str, *axes: Axis, instead: str = LEAVE_OUT) -> tuple[Refusal, ...]:
    """The same reason against each of several axes."""
    return tuple(Refusal(frozenset({axis}), because, instead) for axis in axes)


def _both(because: str, first: Iterable[Axis], second: Iterable[Axis]) -> tuple[Refusal, ...]:
    """The same reason against each pair of one of the first and one of the second."""
    others = list(second)
    return tuple(Refusal(frozenset({one, other}), because) for one in first for other in others)


#: What axes do not go with, whatever the scheme.
FEATURES: dict[Axis, Traits] = {
    Axis.CSI_ERROR: Traits(
        refuses=_each(
            "has a proven bound for uncorrelated Rayleigh fading only, not with", Axis.NOT_RAYLEIGH, Axis.CORRELATED
        )
    ),
    Axis.CLIPPING: Traits(
        refuses=(
            *_each("is that of a single carrier, and is not simulated with", Axis.BANDS),
            *_each("acts symbol by symbol, not with", Axis.SCALAR_UPLINK, instead='set scheme.uplink = "signal"'),
        )
    ),
    Axis.ADC: Traits(
        refuses=_each("acts antenna by antenna, not with", Axis.SCALAR_UPLINK, instead='set scheme.uplink = "signal"')
    ),
    Axis.SELECTION: Traits(
        refuses=_each("keeps a share of exactly K devices, not with", Axis.VARYING_SAMPLING)
        + _each("has combiners for who transmits, not with", Axis.ALL_COLUMNS)
    ),
    Axis.ALIGNED: Traits(
        refuses=_each(
            "finds who sends together with one combiner, and there would be more with",
            Axis.BLOCKS,
            instead='take "strongest" or "greedy", or one block of time and frequency',
        )
    ),
    Axis.EAVESDROPPER: Traits(
        refuses=(
            *_each("has channels by positions, and there are none with", Axis.TRACE),
            *_each("is not worked out with", Axis.PHASE_ERROR, Axis.TIMING),
            *_both("is not simulated with", [Axis.CSI_ERROR], [Axis.BLOCKS, Axis.COMPLEX]),
        )
    ),
    Axis.CONVERGENT: Traits(
        refuses=(
            *_each("needs exact channel knowledge, not", Axis.CSI_ERROR),
            *_each(
                "needs a sum that nothing distorts, not one with",
                *(Axis.PHASE_ERROR, Axis.TIMING, Axis.CLIPPING, Axis.ADC),
            ),
            *_each("counts on one gain for a whole round, not on", Axis.BLOCKS),
        )
    ),
    Axis.STANDARDISED: Traits(
        refuses=(
            *_each("is seen by everybody, and no hidden state covers it with", Axis.DOMAIN),
            *_each("is a release of all devices, not of those with", Axis.FIXED_SAMPLING, Axis.VARYING_SAMPLING),
        )
    ),
}

#: All axes but those that parts have to say they can do with.
_USUAL = frozenset(
    {
        *(Axis.CSI_ERROR, Axis.NOT_RAYLEIGH, Axis.CORRELATED, Axis.TRACE, Axis.COMPLEX, Axis.BLOCKS, Axis.BANDS),
        *(Axis.ROTATION, Axis.PHASE_ERROR, Axis.TIMING, Axis.CLIPPING, Axis.ADC, Axis.INTERFERENCE),
        *(Axis.SCALAR_UPLINK, Axis.FRESH_FADING, Axis.STANDING_FADING),
        *(Axis.FIXED_SAMPLING, Axis.VARYING_SAMPLING, Axis.ALL_COLUMNS, Axis.DROPOUT),
        *(Axis.SELECTION, Axis.ALIGNED, Axis.BEST_SHARE),
        *(Axis.EAVESDROPPER, Axis.SEEING_OBSERVER, Axis.QUADRATURE, Axis.DOMAIN, Axis.PAPER, Axis.SAMPLED),
    }
)
#: And those of plain clipped updates, which hidden state and released statistics count on.
_PLAIN = _USUAL | {Axis.CONVERGENT, Axis.STANDARDISED}
#: And those of clipped updates beside which there is noise: a hidden state counts on them, a release does not.
_CLIPPED = _USUAL | {Axis.CONVERGENT}
_DISTORTS = (Axis.PHASE_ERROR, Axis.TIMING, Axis.CLIPPING, Axis.ADC)

_HIDES = (
    *_each("hides devices in noise or masks of their own, which is not simulated with", *_DISTORTS),
    *_both(
        "hides devices in noise or masks of their own, which is not simulated together with",
        [Axis.COMPLEX, Axis.BLOCKS],
        [Axis.CSI_ERROR, Axis.SELECTION, Axis.VARYING_SAMPLING, Axis.ALL_COLUMNS],
    ),
)
_UNIT_GAIN = _each("needs noise to arrive with unit gain, and so exact channel knowledge, not", Axis.CSI_ERROR)
_FORGETS = "remembers earlier rounds, and rounds that forget are what is counted by"
_REMEMBERS = (
    *_each(_FORGETS, Axis.CONVERGENT, instead="use `gaussian`"),
    *_both(_FORGETS, [Axis.PAPER], [Axis.DOMAIN]),
    Refusal(
        frozenset({Axis.SAMPLED, Axis.FIXED_SAMPLING}),
        "remembers who took part, and exactly K of n earn no credit with",
        'use system.sampling = "poisson", or accountant `gaussian`',
    ),
)
_SCALARS = (
    *_each("has transmit scalars of its own, which is not worked out with", Axis.CSI_ERROR, *_DISTORTS),
    *_each("has gains below one, which the error of a share does not count, not", Axis.BEST_SHARE),
)
_CHOOSES = _each("chooses itself who sends, not by", Axis.SELECTION)

#: What parts of ours say of themselves, by the names of their classes.
PARTS: dict[str, Traits] = {
    # encoders
    "Plain": Traits(_PLAIN),
    "Clip": Traits(_PLAIN),
    "ClipWithNoise": Traits(_CLIPPED, (*_HIDES, *_UNIT_GAIN), budget=True, protects_from=("base-station",)),
    "ClipWithOwnNoise": Traits(
        _CLIPPED,
        (
            *_HIDES,
            *_UNIT_GAIN,
            *_each(
                "finds the noise of every device together with combiners, which is not worked out with",
                *(Axis.COMPLEX, Axis.BLOCKS),
            ),
        ),
        budget=True,
        protects_from=("base-station",),
    ),
    "ClipWithZeroSum": Traits(
        _CLIPPED,
        (
            *_HIDES,
            *_each(
                "perturbs both parts of symbols that carry one coordinate, not with",
                *(Axis.COMPLEX,),
                instead="take masks of `airfl-shielded`, or real symbols",
            ),
        ),
        budget=True,
        shared="seeds of perturbations that cancel",
        protects_from=("base-station", "eavesdropper"),
    ),
    "ClipWithCover": Traits(
        _CLIPPED,
        (
            *_HIDES,
            Refusal(
                frozenset({Axis.QUADRATURE, Axis.COMPLEX}),
                "hides devices in the imaginary part of symbols, which carries data with",
                "use masks, or real symbols",
            ),
        ),
        budget=True,
        shared="with masks: a seed with each of a few others",
        protects_from=SEEING,
        chooses_cover=True,
    ),
    "Sign": Traits(_USUAL),
    "ClipWithMemory": Traits(_USUAL, _REMEMBERS, remembers=True),
    "SignWithMemory": Traits(_USUAL, _REMEMBERS, remembers=True),
    "Dithered": Traits(_USUAL, _REMEMBERS, remembers=True, shared="public signs, drawn anew each round"),
    # policies that choose how large combiners are
    "Ideal": Traits(_PLAIN, over_air=False, knows_channel=False, symbols=""),
    "LeastNoise": Traits(_PLAIN),
    "WithinBudget": Traits(_PLAIN, budget=True),
    "Online": Traits(_PLAIN, budget=True),
    "Adaptive": Traits(_CLIPPED, budget=True),
    "EveryRoundAlone": Traits(_CLIPPED, budget=True),
    "FillUp": Traits(
        _CLIPPED,
        _each(
            "plans its noise from round to round, which is not worked out with",
            *(Axis.CSI_ERROR, Axis.COMPLEX, Axis.BLOCKS, Axis.DROPOUT, *_DISTORTS),
        ),
        budget=True,
    ),
    "LeastTold": Traits(
        _CLIPPED,
        _each("looks at rounds of one block with exact channel knowledge, not with", Axis.BLOCKS, Axis.CSI_ERROR),
    ),
    # policies that find combiners and transmit scalars
    "TruncatedInversion": Traits(
        _USUAL,
        (
            *_SCALARS,
            *_CHOOSES,
            *_each("leaves out entries of blocks that fade, which are mixed by", Axis.ROTATION),
        ),
        keeps=True,
    ),
    "LeastError": Traits(_USUAL, _SCALARS, keeps=True),
    "OverRounds": Traits(_USUAL, _SCALARS, keeps=True),
    "MostDevices": Traits(
        _USUAL,
        (*_SCALARS, *_CHOOSES, *_each("counts who sends in each block, and blocks are mixed by", Axis.ROTATION)),
        keeps=True,
    ),
    "RandomOrthogonal": Traits(_USUAL, _SCALARS, keeps=True, knows_channel=False),
    "WithReplacement": Traits(
        _USUAL,
        (
            *_SCALARS,
            *_CHOOSES,
            *_each(
                "draws devices itself, not by",
                Axis.VARYING_SAMPLING,
                instead='set system.sampling = "fixed" and choose by `scheme.replacement` how it draws',
            ),
        ),
        budget=True,
    ),
    "Energies": Traits(
        _USUAL,
        (
            *_SCALARS,
            *_each("measures energy, which is not simulated with", Axis.SELECTION, Axis.COMPLEX, Axis.DROPOUT),
            *(
                Refusal(
                    frozenset({Axis.FRESH_FADING, axis}),
                    "measures energy, which is not simulated with",
                    'set scheme.fresh_fading = false and scheme.uplink = "signal"',
                )
                for axis in (Axis.NOT_RAYLEIGH, Axis.CORRELATED, Axis.BLOCKS)
            ),
            *_each("measures energy, which is not simulated with", Axis.INTERFERENCE, Axis.EAVESDROPPER, Axis.TRACE),
            *_each("measures energy, and that of rotated updates is not that of updates, with", Axis.ROTATION),
            Refusal(
                frozenset({Axis.STANDING_FADING, Axis.SCALAR_UPLINK}),
                "measures energy, which has no scalar form with",
                'set scheme.uplink = "signal"',
            ),
        ),
        budget=True,
        knows_channel=False,
    ),
    # decoders
    "Mean": Traits(_PLAIN),
    "PerSender": Traits(_USUAL),
    "PerScheduled": Traits(_USUAL),
    "Vote": Traits(_USUAL),
    "Undithered": Traits(_USUAL),
}

#: Encoders of ours by what devices hide in.
HIDDEN_AS = {
    "circular": "ClipWithNoise",
    "each": "ClipWithOwnNoise",
    "zero-sum": "ClipWithZeroSum",
    "chosen": "ClipWithCover",
}

#: Encoder, policy and decoder of every scheme of ours.
SCHEMES: dict[str, tuple[str, str, str]] = {
    "fedavg": ("Plain", "Ideal", "Mean"),
    "fedavg-clip": ("Clip", "Ideal", "Mean"),
    "airfl-mimo": ("Clip", "LeastNoise", "Mean"),
    "airfl-dp": ("Clip", "WithinBudget", "Mean"),
    "airfl-dp-online": ("Clip", "Online", "Mean"),
    "airfl-an": ("ClipWithNoise", "LeastNoise", "Mean"),
    "airfl-shielded": ("ClipWithCover", "LeastNoise", "Mean"),
    "liu2024": ("ClipWithOwnNoise", "LeastNoise", "Mean"),
    "zero-sum": ("ClipWithZeroSum", "LeastNoise", "Mean"),
    "replacement": ("Clip", "WithReplacement", "Mean"),
    "liu2020": ("Clip", "Adaptive", "Mean"),
    "park2023": ("Clip", "FillUp", "Mean"),
    "koda2020": ("Clip", "EveryRoundAlone", "Mean"),
    "tci": ("Clip", "TruncatedInversion", "PerSender"),
    "tci-memory": ("ClipWithMemory", "TruncatedInversion", "PerScheduled"),
    "one-bit": ("Sign", "WithinBudget", "Vote"),
    "one-bit-memory": ("SignWithMemory", "WithinBudget", "Vote"),
    "nc-airfl": ("Dithered", "Energies", "Undithered"),
    "power-mse": ("Clip", "LeastError", "Mean"),
    "power-gap": ("Clip", "OverRounds", "Mean"),
    "select-mse": ("Clip", "MostDevices", "PerSender"),
    "random-orth": ("Clip", "RandomOrthogonal", "Mean"),
    "adascale": ("Clip", "LeastTold", "Mean"),
}
#: What parts from outside say that say nothing: encoders, policies and decoders; policies that find transceivers.
USUAL = Traits(_USUAL)
WITH_SCALARS = Traits(
    _USUAL,
    (
        *_SCALARS,
        *_each("has transmit scalars of its own, and does not say that it works with", Axis.SELECTION, Axis.COMPLEX),
    ),
)


def scheme_traits(name: str, replaced: Sequence[bool] = (False, False, False)) -> Traits:
    """Those of the parts of a scheme of ours, by its name; parts from outside are asked when the scheme is opened.

    Args:
        replaced: which of encoder, policy and decoder are others than the scheme's.
    """
    found = Traits(_PLAIN)
    for part, is_other in zip(SCHEMES.get(name, ()), replaced, strict=False):
        found = found if is_other else found | PARTS[part]
    return found
