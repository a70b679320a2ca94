"""Names of all built-in parts beside schemes (``traits``), and what is known of them; loads nothing heavy.

Where a key takes a part, it takes one of these names or ``package.module:name`` of a part from outside.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from airfl.errors import InputError
from airfl.traits import SCHEMES

COMBINERS = ("auto", "zero-forcing", "sdr", "mrc")
#: Combiners of earlier versions, which `auto` has made superfluous.
FORMER_COMBINERS = ("multicast", "coordinate", "ascent", "dominant")
#: Time that `auto` may take, as a multiple of the usual.
LEAST_EFFORT, MOST_EFFORT = 0.1, 100.0
#: Shares of the active devices that `selection_keep = "best"` chooses from, and the one where nothing is said.
SHARES = (1.0, 0.995, 0.99, 0.98, 0.97, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.35, 0.2, 0.1)
USUAL_SHARE = 0.9
#: Share of the time that a device of truncated inversion sends, where nothing is said.
USUAL_SENT = 0.8
#: Combiners that serve at most as many devices as there are antennas.
NEEDS_ANTENNAS = ("zero-forcing",)


@dataclass(frozen=True)
class Site:
    """One of the places of 3GPP TR 38.901: what it is for, and how high antennas are.

    Attributes:
        highest_device_m: how high a device may be.
        farthest_m: the largest distance without a line of sight.
        indoor_share: of the devices.
        is_sector: outdoors a base station looks at a third of the circle; indoors it hangs from the ceiling.
    """

    base_height_m: float
    device_height_m: float
    highest_device_m: float
    nearest_m: float
    farthest_m: float
    carrier_hz: tuple[float, float]
    indoor_share: float
    is_sector: bool


SITES = {
    "3gpp-umi": Site(10.0, 1.5, 22.5, 10.0, 5000.0, (0.5e9, 100e9), 0.8, True),
    "3gpp-uma": Site(25.0, 1.5, 22.5, 10.0, 5000.0, (0.5e9, 100e9), 0.8, True),
    "3gpp-rma": Site(35.0, 1.5, 10.0, 10.0, 5000.0, (0.5e9, 30e9), 0.5, True),
    "3gpp-inh": Site(3.0, 1.0, 3.0, 1.0, 150.0, (0.5e9, 100e9), 1.0, False),
    "3gpp-inf": Site(8.0, 1.5, 10.0, 1.0, 600.0, (0.5e9, 100e9), 1.0, False),
}
#: With a line of sight the formula of a rural macro cell reaches farther.
RURAL_SIGHT_M = 10_000.0
#: Where the base station of a hall hangs: among the clutter, or above it.
HALL_HEIGHTS = {"SL": 1.5, "DL": 1.5, "SH": 8.0, "DH": 8.0}
#: Laws that Sionna draws, the extra `airfl[sionna]`.
WITH_SIONNA = (*SITES, "tdl", "cdl")
FADING_LAWS = ("rayleigh", "rician", "trace", *WITH_SIONNA)
#: Halls of InF: without a line of sight each has a path loss of its own.
_3GPP_LOSSES = (
    *(f"{site}-{sight}" for site in SITES if site != "3gpp-inf" for sight in ("los", "nlos")),
    "3gpp-inf-los",
    *(f"3gpp-inf-{hall}-nlos" for hall in ("sl", "dl", "sh", "dh")),
)
PATH_LOSSES = ("free-space", "log-distance", *_3GPP_LOSSES)
PARTICIPATION = ("fixed", "poisson")
ACCOUNTANTS = ("gaussian", "sampled", "convergent", "paper", "koda2020", "liu2020", "park2023")
ENGINES = ("auto", "loop", "threads", "batched", "fused")


def site_of(name: str) -> Site | None:
    """The place of 3GPP that a fading law or a path loss is for."""
    return next((site for key, site in SITES.items() if name.startswith(key)), None)


def is_import_path(name: str) -> bool:
    """Tell ``package.module:name`` from a built-in name."""
    return ":" in name


def nearest(name: str, known: Iterable[str]) -> str:
    """A question that names the nearest of some names, or one that shares a word; empty where none is near.

    In a short name two letters in each other's place are a large part of it, and near all the same; so are initials.
    """
    spelt = {item.lower().lstrip("-"): item for item in known}
    own = name.lower().lstrip("-")
    close = difflib.get_close_matches(own, spelt, n=1, cutoff=0.7)
    for is_near in (_swapped, _begins, _share):
        close = close or [item for item in spelt if is_near(own, item)]
    return f"; did you mean `{spelt[close[0]]}`?" if close else ""


def _swapped(name: str, known: str) -> bool:
    """Whether two neighbouring letters of a name, and no others, are in each other's place."""
    wrong = [place for place, (one, other) in enumerate(zip(name, known, strict=False)) if one != other]
    if len(name) != len(known) or len(name) < 3 or len(wrong) != 2 or wrong[1] != wrong[0] + 1:
        return False
    first, second = wrong
    return name[first] == known[second] and name[second] == known[first]


def _begins(name: str, known: str) -> bool:
    """Whether a name is the initials of a known one's words: `lr`."""
    words = re.split("[-_]", known)
    return len(words) > 1 and name == "".join(word[:1] for word in words)


def _share(name: str, known: str) -> bool:
    """Whether a name is the beginning of a known one, or has a whole word of it."""
    began = len(name) > 2 and known.startswith(name)
    return began or any(len(word) > 4 and word in name for word in re.split("[-_]", known))


def no_such(what: str, name: str, known: Iterable[str], more: str = "") -> str:
    """Nothing of this kind has that name: which is nearest, and which there are; ``more`` ends the list."""
    names = list(known)
    near = nearest(name, names)
    return f"no {what} named `{name}`{near}{' Known' if near else '; known'}: {', '.join(names)}{more}"


def require_known(what: str, name: str | None, known: Iterable[str]) -> None:
    """Refuse a name that is none of those known; None asks for nothing."""
    names = list(known)
    if name is not None and name not in names:
        raise InputError(no_such(what, name, names))


def known_name(what: str, names: Sequence[str]) -> Callable[[str], str]:
    """A check for one kind of part: a built-in name, or an import path."""

    def check(name: str) -> str:
        module, colon, attribute = name.partition(":")
        if name in names or (colon and module and attribute and not attribute.count(":")):
            return name
        if not names:
            raise ValueError(f"{what} `{name}` is no import path; expected package.module:name")
        raise ValueError(no_such(what, name, names, ", or package.module:name"))

    return check


def known_combiner(name: str) -> str:
    """As ``known_name``, with a word on those that are gone."""
    if name in FORMER_COMBINERS:
        raise ValueError(f"there is no combiner `{name}` any more; use `auto`, which is shorter on average")
    return known_name("combiner", COMBINERS)(name)


def known_path_loss(name: str) -> str:
    """A path loss has a name; none comes from outside."""
    if name not in PATH_LOSSES:
        raise ValueError(no_such("path loss", name, PATH_LOSSES))
    return name


def _schema(names: Sequence[str]) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "anyOf": [{"enum": list(names)}, {"pattern": "^[^:]+:[^:]+$"}]})


def _checked(what: str, names: Sequence[str]) -> tuple[AfterValidator, WithJsonSchema]:
    return AfterValidator(known_name(what, names)), _schema(names)


SchemeName = Annotated[str, *_checked("scheme", tuple(SCHEMES))]
CombinerName = Annotated[str, AfterValidator(known_combiner), _schema(COMBINERS)]
FadingName = Annotated[str, *_checked("fading law", FADING_LAWS)]
ParticipationName = Annotated[str, *_checked("law of participation", PARTICIPATION)]
AccountantName = Annotated[str, *_checked("accountant", ("auto", *ACCOUNTANTS))]
PathLossName = Annotated[
    str, AfterValidator(known_path_loss), WithJsonSchema({"type": "string", "enum": list(PATH_LOSSES)})
]
PartPath = Annotated[str, *_checked("part", ())]
EngineName = Annotated[str, *_checked("engine", ENGINES)]
