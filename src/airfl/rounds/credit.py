"""Sampling amplification: which rounds earn credit for who takes part being drawn, and hidden. Decided here only.

Credit is taken where the sum that is released is, whoever takes part, the same Gaussian mechanism on the sum of those
who were drawn. docs/privacy.md has the argument for each law, and what each fact that forbids it would tell.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from airfl.config import Config
from airfl.imports import is_outside
from airfl.participation import sampling_of
from airfl.privacy.events import SamplingLaw
from airfl.schemes import Decoder, DesigningPolicy, Encoder, FillUp, Scheme

#: Laws of participation, and whether devices remember, for which credit is proven; and by what argument of the docs.
ARGUMENTS: dict[tuple[SamplingLaw, bool], str] = {
    ("poisson", False): "independent coins",
    ("poisson", True): "independent coins and memories",
    ("without-replacement", False): "a set of K",
    ("binomial", False): "several coins",
}


@dataclass(frozen=True)
class Facts:
    """What decides it. Every fact but the law and memory forbids credit.

    Attributes:
        law: by which devices are drawn.
        remembers: what devices send depends on rounds before: where exactly K of n are drawn, memories of others tell
            who was among them.
        looks: the encoder or the decoder looks at who takes part.
        adds_noise: devices add noise, so how many there are, and where, shows in the noise of the sum.
        chosen_by_channel: devices are scheduled by their channels.
        errs: gains are not known exactly, and differ between devices.
        distorts: amplifiers or converters have limits, which depend on the combiner and on who is there.
        from_outside: the policy is somebody else's, and can draw from the configuration who takes part.
        follows_draws: combiners or noise would be others for other draws.
        follows_data: noise is chosen by an estimate from the data.
    """

    law: SamplingLaw
    remembers: bool = False
    looks: bool = False
    adds_noise: bool = False
    chosen_by_channel: bool = False
    errs: bool = False
    distorts: bool = False
    from_outside: bool = False
    follows_draws: bool = False
    follows_data: bool = False


def earns_sampling_credit(facts: Facts) -> bool:
    """Whether sampling amplification is proven for a round of which these are the facts."""
    forbidden = any(getattr(facts, one.name) for one in fields(facts) if one.name not in ("law", "remembers"))
    return not forbidden and (facts.law, facts.remembers) in ARGUMENTS


def facts_of(config: Config, scheme: Scheme) -> Facts:
    """What is known before combiners are: whether noise will follow the draws is for whoever finds it to say."""
    policy, encoder = scheme.policy, scheme.encoder
    own = policy.sampling(config)
    return Facts(
        (own or sampling_of(config)).law,
        remembers=encoder.remembers,
        looks=type(scheme.decoder).decode_in is not Decoder.decode_in
        or (is_outside(encoder) and type(encoder).encode_in is not Encoder.encode_in),
        adds_noise=encoder.cover != "nothing",
        chosen_by_channel=config.scheme.selection != "all",
        errs=config.channel.estimation_error > 0.0,
        distorts=bool({"clipping_db", "adc_bits"} & set(config.channel.impairments)),
        from_outside=is_outside(policy),
        follows_draws=isinstance(policy, DesigningPolicy) and not policy.ignores_participation(config),
        follows_data=isinstance(policy, FillUp),
    )
