"""The schemes by name: encoder, policy, decoder, and whom each makes a promise to."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from airfl.config import Config
from airfl.errors import InputError
from airfl.imports import calling, import_object, is_import_path
from airfl.schemes.decoders import Mean, PerScheduled, PerSender, Undithered, Vote
from airfl.schemes.encoders import (
    Clip,
    ClipWithCover,
    ClipWithMemory,
    ClipWithNoise,
    ClipWithOwnNoise,
    ClipWithZeroSum,
    Dithered,
    Plain,
    Sign,
    SignWithMemory,
)
from airfl.schemes.parts import Decoder, Encoder, Policy, Scheme
from airfl.schemes.policies import (
    Adaptive,
    Energies,
    EveryRoundAlone,
    FillUp,
    Ideal,
    LeastError,
    LeastNoise,
    LeastTold,
    MostDevices,
    Online,
    OverRounds,
    RandomOrthogonal,
    TruncatedInversion,
    WithinBudget,
    WithReplacement,
)

Part = TypeVar("Part", Encoder, Policy, Decoder)

SCHEMES: dict[str, Scheme] = {
    scheme.name: scheme
    for scheme in (
        Scheme(
            "fedavg",
            "Vanilla FL",
            "Ideal channel, no clipping: what learning alone can do.",
            *(Plain(), Ideal(), Mean()),
        ),
        Scheme(
            "fedavg-clip",
            "FL with clipping",
            "Ideal channel, clipped updates: the price of clipping.",
            *(Clip(), Ideal(), Mean()),
        ),
        Scheme(
            "airfl-mimo",
            "AirFL-MIMO",
            "Fading channel, least noise: the price of the radio link.",
            *(Clip(), LeastNoise(), Mean()),
        ),
        Scheme(
            "airfl-dp",
            "AirFL-DP",
            "Fading channel, noise raised where the privacy budget asks for it: the price of privacy.",
            *(Clip(), WithinBudget(), Mean()),
            promises_to="model",
        ),
        Scheme(
            "airfl-dp-online",
            "AirFL-DP online",
            "The same without knowing the channels to come: the price of causality.",
            *(Clip(), Online(), Mean()),
            promises_to="model",
        ),
        Scheme(
            "airfl-an",
            "AirFL with artificial noise",
            "Devices add noise until even the base station is kept to the budget: the price of distrusting it.",
            *(ClipWithNoise(), LeastNoise(), Mean()),
            promises_to="base-station",
            accountant="gaussian",
        ),
        Scheme(
            "airfl-shielded",
            "AirFL shielded",
            "Devices hide in noise and masks that the sum does not hear: the base station need not be trusted.",
            *(ClipWithCover(), LeastNoise(), Mean()),
            promises_to="base-station",
            accountant="gaussian",
        ),
        Scheme(
            "liu2024",
            "Noise of each device's own power (plain form of Liu 2024)",
            "Devices add as much noise as each of them should, found together with the combiners.",
            *(ClipWithOwnNoise(), LeastNoise(), Mean()),
            promises_to="base-station",
            accountant="gaussian",
        ),
        Scheme(
            "zero-sum",
            "Zero-sum perturbations (plain form of Liao 2022)",
            "Devices add perturbations that cancel in the sum and nowhere else: the price is power, not noise.",
            *(ClipWithZeroSum(), LeastNoise(), Mean()),
            promises_to="base-station",
            accountant="gaussian",
        ),
        Scheme(
            "replacement",
            "Sampling with replacement (plain form of Hu 2024)",
            "Devices are drawn with replacement, and who is drawn twice counts twice: the price of room for it.",
            *(Clip(), WithReplacement(), Mean()),
            promises_to="model",
        ),
        Scheme(
            "liu2020",
            "Adaptive power (Liu 2020)",
            "Prior work: the budget of Liu & Simeone, spent late because noise of early rounds is forgotten.",
            *(Clip(), Adaptive(), Mean()),
            promises_to="model",
            accountant="liu2020",
        ),
        Scheme(
            "park2023",
            "Gradients counted as noise (plain form of Park 2023; not a proof)",
            "Prior work: devices add the noise that an estimate of their gradients' spread leaves to be added.",
            *(Clip(), FillUp(), Mean()),
            promises_to="model",
            accountant="park2023",
        ),
        Scheme(
            "koda2020",
            "Per-round budget (Koda 2020)",
            "Prior work: every round alone keeps the budget; all rounds together do not.",
            *(Clip(), EveryRoundAlone(), Mean()),
            promises_to="model",
            accountant="koda2020",
        ),
        Scheme(
            "tci",
            "Truncated inversion (Zhu 2018, plain form)",
            "Prior work: who fades below a threshold is silent, and what is heard is divided by who sent it.",
            *(Clip(), TruncatedInversion(), PerSender()),
            promises_to="model",
        ),
        Scheme(
            "tci-memory",
            "AirFL-Mem (Wen 2023, plain form)",
            "Prior work: the same, and devices remember what was left out and send it later.",
            *(ClipWithMemory(), TruncatedInversion(fills=True), PerScheduled()),
            promises_to="model",
        ),
        Scheme(
            "one-bit",
            "One bit (Zhu 2020)",
            "Prior work: devices send signs, and the server takes the vote of the majority.",
            *(Sign(), WithinBudget(), Vote()),
            promises_to="model",
            accountant="gaussian",
        ),
        Scheme(
            "one-bit-memory",
            "One bit with error feedback (plain form)",
            "Prior work: the same, and devices carry over what their signs left out.",
            *(SignWithMemory(), WithinBudget(), Vote()),
            promises_to="model",
            accountant="gaussian",
        ),
        Scheme(
            "nc-airfl",
            "NCAirFL (Wen)",
            "Prior work: devices send energies with a public dither and a memory; nobody knows a phase.",
            *(Dithered(), Energies(), Undithered()),
            promises_to="model",
            accountant="gaussian",
        ),
        Scheme(
            "power-mse",
            "Power control (Cao 2020)",
            "Prior work: who can invert the channel does, the others send at full power; least error of every sum.",
            *(Clip(), LeastError(), Mean()),
            promises_to="model",
            accountant="gaussian",
        ),
        Scheme(
            "power-gap",
            "Power over rounds (Cao 2021), plain form",
            "Prior work: regularised inversion with a limit on mean power, and more of it in late rounds.",
            *(Clip(), OverRounds(), Mean()),
            promises_to="model",
            accountant="gaussian",
        ),
        Scheme(
            "select-mse",
            "Device selection (Yang 2020), plain form",
            "Prior work: noise is fixed, and whoever the combiner then reaches takes part.",
            *(Clip(), MostDevices(), PerSender()),
            promises_to="model",
            accountant="gaussian",
        ),
        Scheme(
            "random-orth",
            "Random orthogonalisation (Wei 2022), plain form",
            "Prior work: devices know no channel, and many antennas make their gains nearly equal.",
            *(Clip(), RandomOrthogonal(), Mean()),
            promises_to="model",
            accountant="gaussian",
        ),
        Scheme(
            "adascale",
            "In the manner of AdaScale (2025)",
            "Prior work: a limit on noise is kept, and as little is told as that allows; no budget, an ε at the end.",
            *(Clip(), LeastTold(), Mean()),
        ),
    )
}


def scheme_named(name: str, config: Config | None = None) -> Scheme:
    """A scheme by its name or import path, with the parts that a configuration puts in place of its own."""
    if not is_import_path(name):
        scheme = SCHEMES[name]
    else:
        found = import_object(name, "scheme")
        if not isinstance(found, Scheme):
            raise InputError(f"scheme `{name}` must be an airfl Scheme; got {type(found).__name__}")
        whole = isinstance(found.encoder, Encoder) and isinstance(found.policy, Policy)
        if not whole or not isinstance(found.decoder, Decoder):
            raise InputError(
                f"scheme `{name}` must be made of an Encoder, a Policy and a Decoder, not of their classes"
            )
        scheme = replace(found, name=name)
    if config is None:
        return scheme
    parts = config.scheme
    encoder = _part(parts.encoder, Encoder, scheme.encoder)  # type: ignore[type-abstract]
    with calling(encoder, "encoder"):
        configured = encoder.configured(config)
    if not isinstance(configured, Encoder):
        raise InputError(
            f"encoder `{type(encoder).__name__}` must be an Encoder once configured; got {type(configured).__name__}"
        )
    return replace(
        scheme,
        encoder=configured,
        policy=_part(parts.policy, Policy, scheme.policy),  # type: ignore[type-abstract]
        decoder=_part(parts.decoder, Decoder, scheme.decoder).configured(config),  # type: ignore[type-abstract]
    )


def scheme_shown(name: str) -> Scheme:
    """A scheme for tables and figures: one from outside under its import path, without importing anything."""
    if name in SCHEMES:
        return SCHEMES[name]
    return Scheme(name, name, "A scheme from outside.", Clip(), WithinBudget(), Mean(), promises_to="model")


def _part(path: str | None, kind: type[Part], own: Part) -> Part:
    """The scheme's own part, or the one that an import path names: an object, or a class that takes no arguments."""
    if path is None:
        return own
    word = kind.__name__.lower()
    found = import_object(path, word)
    if isinstance(found, type) and issubclass(found, kind):
        with calling(found, word):
            found = found()  # without arguments
    if not isinstance(found, kind):
        raise InputError(f"{word} `{path}` must be an airfl {kind.__name__}; got {type(found).__name__}")
    return found
