"""One frozen, validated description of a run: TOML in, TOML out, ``section.key=value`` overrides, presets.

In: a preset's name, a TOML file, plain data. Out: a ``Config``, or all that is wrong with it, one sentence each.
Imports names of parts (``catalogue``) and nothing that computes.

Every quantity carries its unit in its name (``_w``, ``_hz``, ``_m``, ``_dbm``, ``_db``). Some keys say the
same thing in different ways, and only one of them may be given: ``local_epochs | local_steps``, ``clip_norm |
clip_factor`` (c² = clip_factor · d), ``epsilon | epsilon_tilde`` (ε = ε̃ · √d), ``power_w | power_dbm | snr_db`` and
``noise_density_dbm_hz | noise_figure_db``.
"""

from airfl.config.channel import FIRST_ZERO, LIGHT_M_S, Channel
from airfl.config.engine import Engine
from airfl.config.learning import Learning
from airfl.config.privacy import Eavesdropper, Privacy
from airfl.config.problems import problems_of
from airfl.config.reading import from_toml, json_schema, parse_override, preset, preset_names, preset_text, read
from airfl.config.scheme import SchemeSection
from airfl.config.section import Section, part_named
from airfl.config.system import System
from airfl.config.whole import EXCLUSIVE_KEYS, NAME_PATTERN, PART_KEYS, Config, from_mapping, key_problem, setting_keys

__all__ = [
    "EXCLUSIVE_KEYS",
    "FIRST_ZERO",
    "LIGHT_M_S",
    "NAME_PATTERN",
    "PART_KEYS",
    "Channel",
    "Config",
    "Eavesdropper",
    "Engine",
    "Learning",
    "Privacy",
    "SchemeSection",
    "Section",
    "System",
    "from_mapping",
    "from_toml",
    "json_schema",
    "key_problem",
    "parse_override",
    "part_named",
    "preset",
    "preset_names",
    "preset_text",
    "problems_of",
    "read",
    "setting_keys",
]
