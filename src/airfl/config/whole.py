"""The whole run: its sections, and what they cannot be together."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Literal

import tomli_w
from pydantic import Field, ValidationError

from airfl.catalogue import NEEDS_ANTENNAS, is_import_path
from airfl.config.channel import Channel
from airfl.config.engine import Engine
from airfl.config.learning import Learning
from airfl.config.privacy import Eavesdropper, Privacy
from airfl.config.problems import key_problem as problem_of_key
from airfl.config.problems import keys_of, problems_of
from airfl.config.scheme import SchemeSection
from airfl.config.section import Section
from airfl.config.system import System
from airfl.errors import InputError, listed
from airfl.traits import SEEING, Axis, Traits, conflicts, scheme_traits

#: Strings that name files or what is in them; a colon in any other one makes it ``package.module:callable``.
FILE_KEYS = (
    *("data_dir", "trace_file", "table_file"),
    *("device_column", "label_column", "order_column", "label_classes"),
)
#: Of a run or a study, which is also the name of a folder: `.` and `..` are other folders, `-rf` is an option.
NAME_PATTERN = r"^\.*[A-Za-z0-9_][A-Za-z0-9._-]*$"


class Config(Section):
    """The whole run."""

    name: str = Field("run", pattern=NAME_PATTERN, max_length=200)
    system: System = System()
    learning: Learning
    channel: Channel = Channel()
    privacy: Privacy = Privacy()
    scheme: SchemeSection = SchemeSection()
    eavesdropper: Eavesdropper | None = None
    engine: Engine = Engine()

    def _problems(self) -> Iterator[str]:
        yield from super()._problems()
        parts = self.scheme
        replaced = tuple(part is not None for part in (parts.encoder, parts.policy, parts.decoder))
        traits = {name: scheme_traits(name, replaced) for name in parts.names}
        served_all = parts.combiner_columns == "all" or self.system.varies
        columns = self.system.num_devices if served_all else self.system.num_active
        limited = parts.combiner in NEEDS_ANTENNAS and any(found.over_air for found in traits.values())
        if limited and columns > self.system.num_antennas:
            yield (
                f"combiner `{parts.combiner}` serves at most as many devices as there are antennas, got "
                f"{columns} devices and `system.num_antennas` = {self.system.num_antennas}; use `auto`, "
                "lower `system.participation` or add antennas"
            )
        private = [name for name, found in traits.items() if found.budget]
        if private and self.privacy.epsilon is None and self.privacy.epsilon_tilde is None:
            yield f"scheme `{private[0]}` needs a budget; give `privacy.epsilon` or `privacy.epsilon_tilde`"
        on = self.axes()
        yield from conflicts([(f"scheme `{name}`", found) for name, found in traits.items()], on)
        if Axis.CONVERGENT in on:
            yield from self._hidden_state_problems()
        if self.learning.standardise_epsilon is not None and self.privacy.accountant not in ("auto", "gaussian"):
            yield (
                '`learning.standardise_epsilon` is booked by privacy.accountant = "gaussian" only; got '
                f'"{self.privacy.accountant}"'
            )
        yield from self._cover_problems(traits)

    def _hidden_state_problems(self) -> Iterator[str]:
        """What the accountant `convergent` needs to be told."""
        if None in (self.learning.domain_diameter, self.privacy.smoothness):
            yield (
                "accountant `convergent` needs an enforced domain and a stated smoothness; give "
                "`learning.domain_diameter` and `privacy.smoothness`"
            )
        if not self.learning.plain_server:
            yield (
                "accountant `convergent` counts on plain server steps and on hidden models; set "
                "`learning.server_momentum` = 0, `learning.model_average` = 0 and a constant `learning.server_schedule`"
            )
        if self.learning.local_epochs and not self.learning.public_sizes:
            yield (
                "accountant `convergent` needs the number of local steps, which would tell the size of the largest "
                "device; give `learning.max_samples_per_device`, or `learning.local_steps` in place of "
                "`learning.local_epochs`"
            )

    def _cover_problems(self, traits: Mapping[str, Traits]) -> Iterator[str]:
        """What schemes that hide devices in signals, and promises about those who see signals, need."""
        scheme, observer = self.scheme, self.privacy.observer
        chosen = any(found.chooses_cover for found in traits.values())
        outside = scheme.encoder is not None or any(is_import_path(name) for name in scheme.names)
        if scheme.cover != "auto" and not chosen and not outside:
            yield (
                f"`scheme.cover` hides devices in the signals of a radio link, and scheme `{scheme.names[0]}` sends no "
                "cover; use `airfl-shielded`, or leave it out"
            )
        if observer in SEEING and not outside and not any(observer in found.protects_from for found in traits.values()):
            yield (
                f'`privacy.observer` = "{observer}" takes a scheme that hides devices in the signals themselves; use '
                "`airfl-shielded`"
            )
        if observer == "eavesdropper" and self.eavesdropper is None:
            yield '`privacy.observer` = "eavesdropper" needs a section [eavesdropper]: where is she?'
        senders = max(1, round(scheme.least_share * self.system.num_active))
        directions = 2 * self.system.num_antennas - 1
        if chosen and scheme.cover == "quadrature" and senders < directions:
            yield (
                f'cover = "quadrature" of {senders} devices leaves {directions - senders} of the {directions} '
                f"directions beside the sum uncovered: it takes K >= 2m - 1 for {self.system.num_antennas} antennas; "
                "use masks, or fewer antennas"
            )
        if chosen and scheme.cover == "masks" and scheme.mask_degree >= senders:
            yield (
                f"`scheme.mask_degree` = {scheme.mask_degree} must be below the number of devices that send, {senders}"
            )

    def axes(self, blocks: int = 1, bands: int = 1) -> dict[Axis, str]:
        """The axes that are on, and the keys that say so: of keys that are marked with one, where they are set.

        Args:
            blocks: of a round; a configuration alone does not know how many symbols a model takes.
            bands: of these, side by side.
        """
        channel, scheme, system, privacy = self.channel, self.scheme, self.system, self.privacy
        errs = channel.estimation_error > 0.0
        said: dict[Axis, tuple[bool, str]] = {
            Axis.CSI_ERROR: (errs, f"`channel.{'csi_error' if channel.csi_error > 0.0 else 'csi_age_s'}`"),
            Axis.NOT_RAYLEIGH: (channel.fading != "rayleigh", f'channel.fading = "{channel.fading}"'),
            Axis.CORRELATED: (
                bool(channel.antenna_correlation or channel.device_correlation),
                f"`channel.{'antenna' if channel.antenna_correlation else 'device'}_correlation`",
            ),
            Axis.TRACE: (channel.fading == "trace", 'channel.fading = "trace"'),
            Axis.COMPLEX: (channel.symbols == "complex", 'channel.symbols = "complex"'),
            Axis.BLOCKS: (blocks > 1, f"{blocks:,} blocks a round"),
            Axis.BANDS: (bands > 1, f"{bands:,} bands side by side"),
            Axis.SCALAR_UPLINK: (scheme.uplink == "equivalent", 'scheme.uplink = "equivalent"'),
            Axis.FRESH_FADING: (scheme.fresh_fading, "scheme.fresh_fading = true"),
            Axis.STANDING_FADING: (not scheme.fresh_fading, "scheme.fresh_fading = false"),
            Axis.FIXED_SAMPLING: (not (system.varies or system.everyone), "`system.participation`"),
            Axis.VARYING_SAMPLING: (system.varies, f'system.sampling = "{system.sampling}"'),
            Axis.ALL_COLUMNS: (scheme.combiner_columns == "all", 'scheme.combiner_columns = "all"'),
            Axis.SELECTION: (scheme.selection != "all", "`scheme.selection`"),
            Axis.ALIGNED: (scheme.selection == "aligned", 'scheme.selection = "aligned"'),
            Axis.BEST_SHARE: (scheme.selection != "all" and scheme.share == "best", "the best `scheme.selection_keep`"),
            Axis.EAVESDROPPER: (self.eavesdropper is not None, "an [eavesdropper]"),
            Axis.SEEING_OBSERVER: (privacy.observer in SEEING, f'privacy.observer = "{privacy.observer}"'),
            Axis.QUADRATURE: (scheme.cover == "quadrature", 'scheme.cover = "quadrature"'),
            Axis.CONVERGENT: (privacy.accountant == "convergent", "accountant `convergent`"),
            Axis.PAPER: (privacy.accountant == "paper", "accountant `paper`"),
            Axis.SAMPLED: (privacy.accountant == "sampled", "accountant `sampled`"),
        }
        on = {axis: keys for axis, (is_on, keys) in said.items() if is_on}
        for name in type(self).model_fields:
            section = getattr(self, name)
            for key, field in type(section).model_fields.items() if isinstance(section, Section) else ():
                if getattr(section, key) != field.default:
                    on |= {mark: f"`{name}.{key}`" for mark in field.metadata if isinstance(mark, Axis)}
        return on

    @property
    def neighbours(self) -> Literal["zero-out", "replace"]:
        """The neighbouring relation after resolving ``auto``."""
        if self.privacy.neighbours == "auto":
            return "zero-out" if self.system.everyone or self.system.varies else "replace"
        return self.privacy.neighbours

    @property
    def num_transmitting(self) -> int:
        """How many of the K active devices transmit over the air, once the share is settled."""
        share = self.scheme.share
        if self.scheme.selection == "all":
            return self.system.num_active
        assert share != "best", "a share is settled before rounds are designed"
        return max(1, round(share * self.system.num_active))

    @property
    def imports(self) -> tuple[str, ...]:
        """User code that this names, ``package.module:callable``; it is executed when the run is opened."""
        named = [
            value
            for section in self.to_mapping().values()
            if isinstance(section, dict)
            for key, item in section.items()
            if key not in FILE_KEYS
            for value in (item if isinstance(item, list) else [item])
        ]
        return tuple(dict.fromkeys(value for value in named if isinstance(value, str) and ":" in value))

    def replace(self, overrides: Mapping[str, Any] | None = None, /, **sections: Mapping[str, Any] | str) -> Config:
        """Return a copy with keys changed: ``replace({"system.rounds": 3})`` or ``replace(system={"rounds": 3})``.

        Naming one key of an exclusive pair drops the other one.
        """
        flat = dict(overrides or {})
        for section, values in sections.items():
            if isinstance(values, Mapping):
                flat.update({f"{section}.{key}": value for key, value in values.items()})
            else:
                flat[section] = values
        return from_mapping(changed(self.to_mapping(), flat))

    def to_mapping(self) -> dict[str, Any]:
        """Return nested plain data, keys that are not set left out."""
        return self.model_dump(mode="json", exclude_none=True)

    def _changes(self) -> tuple[str, dict[str, Any]]:
        """The preset of the same name and the keys that differ from it; where there is none, from the defaults."""
        from airfl.config.reading import preset, preset_names  # which read a whole configuration

        if self.name not in preset_names():
            return "", _flat(self.model_dump(mode="json", exclude_defaults=True, exclude_none=True))
        own, base = _flat(self.to_mapping()), _flat(preset(self.name).to_mapping())
        differ = dict.fromkeys(key for key in (*own, *base) if own.get(key) != base.get(key))
        return self.name, {key: own.get(key) for key in differ}

    def __repr__(self) -> str:
        like, differ = self._changes()
        whose = f"preset {like!r}" if like else repr(self.name)
        return f"<airfl.Config {whose}{''.join(f', {key} = {_short(value)}' for key, value in differ.items())}>"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        like, differ = self._changes()
        whose = f"preset <b>{escape(like)}</b>" if like else f"<b>{escape(self.name)}</b>"
        rows = "".join(f"<tr><td>{key}</td><td>{escape(_short(value))}</td></tr>" for key, value in differ.items())
        kind = "preset" if like else "defaults"
        said = f"what differs from the {kind}" if rows else f"nothing differs from the {kind}"
        return f"<div>airfl configuration, {whose}: {said}</div>" + (f"<table>{rows}</table>" if rows else "")

    def sha256(self) -> str:
        """A fingerprint of the resolved configuration."""
        return hashlib.sha256(json.dumps(self.to_mapping(), sort_keys=True).encode()).hexdigest()

    def to_toml(self) -> str:
        """Return the resolved configuration as TOML; ``from_toml`` reads it back to an equal object."""
        return tomli_w.dumps(self.to_mapping())


#: Keys that take a part, ``section.key``.
PART_KEYS = frozenset(
    f"{name}.{key}"
    for name, field in Config.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
    for key in field.annotation.parts
)

#: Section and the two keys of each exclusive pair: an override that names one drops the other.
EXCLUSIVE_KEYS = tuple(
    (name, first, second)
    for name, section in (
        ("learning", Learning),
        ("channel", Channel),
        ("privacy", Privacy),
        ("scheme", SchemeSection),
        ("eavesdropper", Eavesdropper),
    )
    for first, second in section.pairs
)


def from_mapping(values: Mapping[str, Any]) -> Config:
    """Validate nested plain data; every problem becomes one sentence in an ``InputError``."""
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise InputError(listed("the configuration", problems_of(error, Config))) from None


def changed(values: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Nested plain data with dotted keys changed; naming one key of an exclusive pair drops the other one."""
    result = {key: dict(value) if isinstance(value, Mapping) else value for key, value in values.items()}
    for dotted in overrides:
        section, _, key = dotted.partition(".")
        for pair_section, first, second in EXCLUSIVE_KEYS:
            if overrides[dotted] is None:  # to take one way of saying it back is not to choose another
                continue
            if section == pair_section and key in (first, second) and isinstance(result.get(section), dict):
                for name in (first, second):
                    if f"{section}.{name}" not in overrides:
                        result[section].pop(name, None)
    for dotted, value in overrides.items():
        section, dot, key = dotted.partition(".")
        if not dot:
            result[section] = value
            continue
        target = result.setdefault(section, {})
        if not isinstance(target, dict):
            raise InputError(f"`{section}` is not a section, so `{dotted}` cannot be set")
        if value is None:
            target.pop(key, None)
        else:
            target[key] = value
    return result


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Keys of sections as ``section.key``; the name is left out."""
    sections = {name: section for name, section in values.items() if isinstance(section, Mapping)}
    return {f"{name}.{key}": value for name, section in sections.items() for key, value in section.items()}


def _short(value: Any) -> str:
    """A value for people."""
    if isinstance(value, list):
        return ", ".join(str(item) for item in value)
    return "not set" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def key_problem(name: str) -> str:
    """What is wrong with `section.key` as a key to set; empty if nothing is."""
    return problem_of_key(name, Config)


def setting_keys() -> list[str]:
    """Every key that can be set, as `section.key`."""
    return keys_of(Config)
