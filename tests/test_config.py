from __future__ import annotations

import json
import math

import pytest
import tomli_w
from pydantic import ValidationError

import airfl
from airfl import catalogue, traits
from airfl import config as configuration
from airfl.channel.laws import LAWS
from airfl.errors import InputError
from airfl.privacy import ACCOUNTANTS
from airfl.schemes import SCHEMES
from airfl.transceiver import COMBINERS


@pytest.mark.parametrize("name", ["demo", "paper", "authors", "paper-noniid"])
def test_presets_round_trip(name):
    config = airfl.preset(name)
    assert config.name == name
    assert configuration.from_toml(config.to_toml()) == config


def test_presets_listed():
    assert set(airfl.preset_names()) >= {"demo", "paper", "authors", "paper-noniid"}


def test_paper_preset_says_what_the_paper_ran():
    config = airfl.preset("paper")
    assert config.system.num_active == 45
    assert config.learning.local_epochs == 5
    assert config.learning.clip_norm_for(582_026) == pytest.approx(math.sqrt(0.012 * 582_026))
    assert config.privacy.epsilon_for(582_026) == pytest.approx(76.29, abs=0.01)
    assert config.neighbours == "replace"
    authors = airfl.preset("authors")
    assert authors.channel.distance == "common"
    assert authors.scheme.combiner_columns == "all"
    assert authors.learning.drop_last


def test_frozen():
    with pytest.raises(ValidationError):
        airfl.preset("paper").system.rounds = 3


def test_unknown_key_names_the_nearest():
    with pytest.raises(InputError, match=r"unknown key `system.num_device`; did you mean `num_devices`"):
        airfl.preset("paper").replace({"system.num_device": 3})
    with pytest.raises(InputError, match=r"unknown key `sistem`; did you mean `system`"):
        airfl.preset("paper").replace({"sistem.rounds": 3})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("privacy.delta", 0),
        ("privacy.delta", 1),
        ("privacy.epsilon", -1),
        ("privacy.epsilon", 0),
        ("system.participation", 0),
        ("system.participation", 1.5),
        ("learning.clip_norm", 0),
        ("learning.learning_rate", float("nan")),
        ("channel.power_w", float("inf")),
        ("system.rounds", 0),
        ("system.trials", 0),
        ("system.num_devices", 2.5),
        ("learning.partition", "iidd"),
        ("scheme.names", []),
        ("scheme.names", ["fedavg", "fedavg"]),
        ("channel.fading", "trace"),
        ("channel.trace_file", "x.npz"),
        ("learning.samples_per_device", 0),
        ("name", "a/b"),
        ("privacy.epsilon", 1e308),
        ("learning.clip_norm", 1e200),
        ("channel.power_w", 1e300),
        ("channel.noise_density_dbm_hz", 1e5),
        ("channel.rician_k_db", 1e5),
    ],
)
def test_bad_values_are_refused_in_one_sentence(key, value):
    with pytest.raises(InputError) as caught:
        airfl.preset("paper").replace({key: value})
    assert "\n" not in str(caught.value)


def test_zero_forcing_needs_antennas():
    with pytest.raises(InputError, match="at most as many devices as there are antennas"):
        airfl.preset("paper").replace({"system.num_antennas": 44})
    assert airfl.preset("paper").replace({"system.num_antennas": 45}).system.num_antennas == 45
    with pytest.raises(InputError, match="antennas"):
        airfl.preset("authors").replace({"system.num_antennas": 49})  # its combiner serves all 50
    # Over an ideal channel antennas play no part.
    airfl.preset("paper").replace({"system.num_antennas": 1, "scheme.names": ["fedavg"]})


def test_private_scheme_needs_a_budget():
    with pytest.raises(InputError, match="needs a budget"):
        airfl.preset("paper").replace({"privacy.epsilon": None, "privacy.epsilon_tilde": None})


@pytest.mark.parametrize(("section", "first", "second"), [(s, a, b) for s, a, b in configuration.EXCLUSIVE_KEYS])
def test_one_of_a_pair_replaces_the_other_but_both_are_refused(section, first, second):
    base = airfl.preset("paper")
    values = {first: 3, second: {"position": (3, 4), "truncation_share": 0.3}.get(second, 3)}
    for start in (base, base.replace({f"{section}.{first}": 3}), base.replace({f"{section}.{second}": values[second]})):
        for one, other in ((first, second), (second, first)):
            changed = getattr(start.replace({f"{section}.{one}": values[one]}), section)
            assert getattr(changed, one) == values[one]
            assert getattr(changed, other) is None
    with pytest.raises(InputError, match="say the same thing"):
        base.replace({f"{section}.{name}": value for name, value in values.items()})
    both = base.to_mapping()
    both[section] = {**both.get(section, {}), **values}
    with pytest.raises(InputError, match="say the same thing"):
        configuration.from_toml(tomli_w.dumps(both))


def test_overrides_are_read_as_toml():
    assert configuration.parse_override("system.rounds=10") == ("system.rounds", 10)
    assert configuration.parse_override("channel.power_w=2e-9") == ("channel.power_w", 2e-9)
    assert configuration.parse_override("learning.model=mlp") == ("learning.model", "mlp")
    assert configuration.parse_override('scheme.names=["fedavg"]') == ("scheme.names", ["fedavg"])
    with pytest.raises(InputError, match=r"section\.key=value"):
        configuration.parse_override("rounds")


def test_sections_as_keywords():
    config = airfl.preset("paper").replace(system={"rounds": 3}, name="mine")
    assert (config.system.rounds, config.name) == (3, "mine")
    assert airfl.preset("paper").system.rounds == 50


def test_files(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(airfl.preset("demo").to_toml(), encoding="utf-8")
    assert airfl.read(str(path)) == airfl.preset("demo")
    with pytest.raises(InputError, match="cannot read"):
        airfl.read(str(tmp_path / "absent.toml"))
    with pytest.raises(InputError, match="did you mean `paper`"):
        airfl.read("papper")
    path.write_text("[system\n", encoding="utf-8")
    with pytest.raises(InputError, match="not valid TOML"):
        airfl.read(str(path))
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="cannot read"):
        airfl.read(str(path))


def test_schema_is_json_and_lists_every_section():
    schema = json.loads(json.dumps(airfl.json_schema()))
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert {"system", "learning", "channel", "privacy", "scheme", "engine"} <= set(schema["properties"])


def test_names_in_the_catalogue_are_the_names_that_exist():
    said = {name: traits.scheme_traits(name) for name in traits.SCHEMES}
    assert {name: entry.budget or entry.keeps for name, entry in said.items()} == {
        name: scheme.keeps_budget for name, scheme in SCHEMES.items()
    }
    for entry in said.values():  # without a radio nobody knows a channel or sends a symbol
        assert entry.over_air or (not entry.knows_channel and not entry.symbols)
    assert set(catalogue.ACCOUNTANTS) == {name for name, kind in ACCOUNTANTS.items() if "model" in kind.observers}
    assert set(catalogue.COMBINERS) == set(COMBINERS)
    assert set(catalogue.FADING_LAWS) == set(LAWS)


@pytest.mark.parametrize(
    ("key", "name", "near"),
    [
        ("scheme.combiner", "zero-forcin", "zero-forcing"),
        ("channel.fading", "rayliegh", "rayleigh"),
        ("privacy.accountant", "gausian", "gaussian"),
        ("system.sampling", "poison", "poisson"),
        ("engine.backend", "thread", "threads"),
    ],
)
def test_an_unknown_name_is_refused_with_what_exists_and_the_nearest(tiny, key, name, near):
    with pytest.raises(airfl.InputError, match=f"did you mean `{near}`.*package.module:name"):
        tiny.replace({key: name})
    for bad in (":", "mine:", ":part", "a:b:c"):
        with pytest.raises(airfl.InputError, match=r"package\.module:name"):
            tiny.replace({key: bad})


def test_the_relation_by_its_older_name_is_the_same_relation() -> None:
    """`add-remove` of older files, ledgers and calls means `zero-out`; both halve what `replace` takes."""
    from airfl.linkplan.quantities import Quantities
    from airfl.privacy import LedgerAccountant, compare, make_accountant, reach, relation_of, what_if_ledger

    config = airfl.preset("demo").replace({"privacy.neighbours": "add-remove"})
    assert config.privacy.neighbours == config.neighbours == "zero-out"
    assert relation_of("add-remove") == "zero-out"
    assert reach("add-remove") == reach("zero-out") == 1.0  # type: ignore[arg-type]
    ledger = what_if_ledger(1.0, 4.0, 10, 0.3)
    for name in ("gaussian", "sampled", "liu2020"):
        old, new = (make_accountant(name, ledger, word).epsilon(1e-5) for word in ("add-remove", "zero-out"))  # type: ignore[arg-type]
        assert old == new < make_accountant(name, ledger, "replace").epsilon(1e-5)
    assert compare([ledger], 1e-5, "add-remove", None) == compare([ledger], 1e-5, "zero-out", None)
    assert LedgerAccountant(neighbours="add-remove").state_dict()["neighbours"] == "zero-out"  # type: ignore[arg-type]
    assert Quantities(neighbours="add-remove").relation == "zero-out"  # type: ignore[arg-type]
