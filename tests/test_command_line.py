"""Habits of all commands: version, help, quiet, completion, near names, usage errors, and what they do not load."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

import airfl
from airfl import errors
from airfl.catalogue import ACCOUNTANTS, COMBINERS, nearest, no_such
from airfl.config import preset_names, setting_keys
from airfl.errors import InputError, about_file, failure, in_words
from airfl.places import experiments_folder, scenario_names
from airfl.study import make_study
from airfl.traits import OBSERVERS, SCHEMES
from tests.test_cli import TINY

COMMANDS = (
    *(
        "run",
        "demo",
        "epsilon",
        "audit",
        "sweep",
        "status",
        "report",
        "reproduce",
        "arena",
        "design",
        "plan",
        "presets",
    ),
    "doctor",
)


def test_version(call):
    assert call("--version") == (0, f"airfl {airfl.__version__}\n", "")


@pytest.mark.parametrize("width", [80, 60])
@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_is_short_or_long_and_not_cut_off(call, monkeypatch, command, width):
    monkeypatch.setenv("COLUMNS", str(width))
    words = [command] if command else []
    code, out, err = call(*words, "-h")
    assert (code, err) == (0, "")
    assert call(*words, "--help")[1] == out
    assert max(map(len, out.splitlines())) <= width
    assert "--quiet" in out
    assert not [line for line in out.splitlines()[1:] if line.endswith(("...", "…"))]


def test_help_names_every_command(call):
    out = call("-h")[1]
    assert all(f"\n  {name} " in out for name in COMMANDS)
    code, nothing, shown = call()
    assert (code, nothing, shown) == (2, "", out)


EXECUTES = "airfl: this executes code that the configuration names: 'mine:soft' (--no-imports refuses it)\n"


def test_quiet_before_or_after_the_command(call, tmp_path):
    """Bars and notes go; that code is about to be executed is a warning, and stays."""
    (tmp_path / "mine.py").write_text("from airfl.devices.models import MODELS\nsoft = MODELS['softmax']\n")
    run = ["run", "paper", *TINY, "--scheme", "fedavg", "--set", "learning.model=mine:soft", "--json"]
    code, _, loud = call(*run, "--out", "a")
    assert (code, "fedavg" in loud, "this executes code" in loud) == (0, True, True)
    for number, words in enumerate((["--quiet", *run], [*run, "--quiet"], [*run, "-q"])):
        code, out, err = call(*words, "--out", f"b{number}")
        assert (code, err) == (0, EXECUTES)
        assert '"fedavg"' in out
    audit = ["audit", "small.toml", "--set", "privacy.epsilon=8", "--scheme", "airfl-dp", "--repetitions", "20"]
    small = "learning = {dataset = 'digits', split = 'standard', model = 'mine:soft', local_steps = 1, clip_norm = 1.0}"
    study = "name = 's'\nbase = 'small.toml'\nschemes = ['fedavg']\ntrials = 1\n"
    (tmp_path / "small.toml").write_text(f"{small}\nsystem = {{rounds = 1, num_devices = 12, num_antennas = 16}}")
    (tmp_path / "s.toml").write_text(study)
    for words in (audit, ["sweep", "s.toml", "--out", "s"]):
        assert EXECUTES in call("-q", *words)[2]
    assert call(*run, "--out", "c")[2] != ""  # it is not remembered
    assert call("--quiet", "run", "papper")[2].startswith("airfl: no preset")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("runn", "no command `runn`; did you mean `run`?"),
        ("Run", "no command `Run`; did you mean `run`?"),
        ("version", "no command `version`; did you mean `--version`?"),
        ("xyzzy", "no command named `xyzzy`; known: run, demo"),
        ("--verison", "`airfl` has no option `--verison`; did you mean `--version`?"),
        ("run demo --schem x", "`airfl run` has no option `--schem`; did you mean `--scheme`?"),
        ("run demo -x", "`airfl run` has no option `-x`; see airfl run -h"),
        ("run papper", "no preset or file named `papper`; did you mean `paper`?"),
        ("presets papper", "did you mean `paper`?"),
        ("run demo --set system.runds=3", "unknown key `system.runds`; did you mean `rounds`?"),
        ("run demo --set learning.lr=3", "unknown key `learning.lr`; did you mean `learning_rate`?"),
        (
            "run demo --set name=-rf",
            "`name`: must be made of letters, digits, `.`, `_` and `-`, and not begin with `-`",
        ),
        ("run demo --set rounds=3", "unknown key `rounds`; did you mean `system.rounds`?"),
        ("run demo --set sytem.rounds=3", "did you mean `system`?"),
        ("run demo --set eavesdropper.antenas=3", "did you mean `antennas`?"),
        ("run demo --scheme airfl-dpp", "did you mean `airfl-dp`?"),
        ("run demo --accountant gausian", "did you mean `gaussian`?"),
        ("run demo --set scheme.combiner=zero-forcng", "did you mean `zero-forcing`?"),
        ("run demo --set scheme.combiner=mcr", "did you mean `mrc`?"),
        ("run demo --set privacy.observer=base-sation", "did you mean `base-station`?"),
        ("run demo --device cud", "did you mean `cuda`?"),
        ("audit demo --observer modle", "did you mean `model`?"),
        ("audit demo --scheme fedavgg", "did you mean `fedavg`?"),
        ("design --method zeroforcing", "did you mean `zero-forcing`?"),
        ("plan urban-cel", "did you mean `urban-cell`?"),
        ("plan --solve-for powr", "did you mean `power`?"),
        ("reproduce fig33", "did you mean `fig3`?"),
        ("reproduce all --scale smok", "did you mean `smoke`?"),
        ("reproduce all --variant author", "did you mean `authors`?"),
        ("arena --scale smok", "did you mean `smoke`?"),
        ("design --no-imports", "`airfl design` has no option `--no-imports`; see airfl design -h"),
        ("run demo --set scheme.engine=x", "unknown key `scheme.engine`; known keys: names"),
        ("run demo --set learning.engine=x", "unknown key `learning.engine`; known keys: dataset"),
        ("epsilon --rounds many", "--rounds must be a whole number"),
        ("epsilon --delta small", "--delta must be a number"),
        ("sweep", "STUDY is missing; see airfl sweep -h"),
        ("presets demo more", "`more` is more than airfl presets takes"),
        ("run --out", "--out needs a value"),
        ("run demo --json=3", "--json takes no value"),
    ],
)
def test_what_is_nearly_right_is_named_in_one_sentence(call, arguments, words):
    code, out, err = call(*arguments.split())
    assert (code, out, len(err.strip().splitlines())) == (2, "", 1), err
    assert err.strip().startswith("airfl: ")
    assert words in err


def test_near_names():
    assert nearest("PAPER", preset_names()) == "; did you mean `paper`?"
    assert nearest("qqq", preset_names()) == ""
    assert nearest("mcr", COMBINERS) == nearest("rmc", COMBINERS) == "; did you mean `mrc`?"
    assert nearest("srd", COMBINERS) == "; did you mean `sdr`?"
    for far in ("crm", "cmr", "mmc", "xyz"):
        assert nearest(far, COMBINERS) == "", far
    assert no_such("scale", "x", ("full", "half")) == "no scale named `x`; known: full, half"


def test_a_study_names_its_axes(call, tmp_path):
    text = 'base = "demo"\n[grid]\n"system.runds" = [1]\n"sytem.rounds" = [1]\n[set]\nrounds = 3\n'
    (tmp_path / "s.toml").write_text(text)
    code, _, err = call("sweep", "s.toml", "--dry-run")
    assert code == 2
    assert err.splitlines() == [
        "airfl: the study has 3 problems:",
        "• unknown key `rounds`; did you mean `system.rounds`?",
        "• unknown key `system.runds`; did you mean `rounds`?",
        "• unknown key `sytem.rounds`; did you mean `system.rounds`?",
    ]
    with pytest.raises(InputError, match="study: `base` is missing"):
        make_study({})
    with pytest.raises(
        InputError, match=r"3 problems:\n• `base` is missing.*\n• `trials`.*\n• unknown key `grids`; did"
    ):
        make_study({"trials": 0, "grids": {}})


def test_all_problems_of_a_configuration_at_once(call):
    wrong = ["system.trials=0", "system.runds=3", "learning.clip_norm=1", "learning.clip_factor=2", "engine.device=tpu"]
    code, out, err = call("run", "paper", *(word for text in wrong for word in ("--set", text)))
    first, *lines = err.splitlines()
    assert (code, out, first) == (2, "", "airfl: the configuration has 4 problems:")
    assert all(line.startswith("• ") for line in lines)
    for line, word in zip(lines, ("system.trials", "system.runds", "say the same thing", "engine.device"), strict=True):
        assert word in line


def test_sections_that_do_not_fit_together_are_all_named():
    changes = {
        "privacy.accountant": "convergent",
        "channel.csi_error": 0.1,
        "system.num_antennas": 3,
        "privacy.observer": "everything",
    }
    with pytest.raises(InputError) as refused:
        airfl.preset("paper").replace(changes)
    lines = str(refused.value).splitlines()
    assert lines[0] == "the configuration has 4 problems:"
    for line, word in zip(lines[1:], ("antennas", "csi_error", "smoothness", "privacy.observer"), strict=True):
        assert word in line


def test_one_wrong_scheme_is_one_problem_and_small_numbers_are_short():
    with pytest.raises(InputError, match=r"^scheme\.names\.0: no scheme named `x`"):
        airfl.preset("demo").replace({"scheme.names": ["x"]})
    with pytest.raises(InputError, match=r"greater than or equal to 1e-200; got 0"):
        airfl.preset("demo").replace({"privacy.delta": 0})


@pytest.mark.parametrize("number", sorted(errors._WORDS))
def test_what_the_system_says_is_said_in_words(number):
    error = OSError(number, os.strerror(number), "there")
    assert "Errno" not in in_words(error)
    assert about_file(error) == f"`there`: {in_words(error)}" == failure(error)


def test_other_errors_in_words():
    from urllib.error import URLError

    assert in_words(URLError(ConnectionRefusedError(errno.ECONNREFUSED, "x"))) == "nobody listens there"
    assert in_words(URLError("unknown url type: x")) == "unknown url type: x"
    assert in_words(TimeoutError("timed out")) == "it took too long to answer"
    assert in_words(OSError(errno.EXDEV, "Invalid cross-device link")) == "invalid cross-device link"
    assert in_words(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad")) == "it is not UTF-8 text (byte 1)"
    assert (in_words(ValueError("odd")), failure(ValueError("odd"))) == ("odd", "ValueError: odd")
    assert failure(KeyError()) == "KeyError"


READING = [
    ("run", "{}"),
    ("audit", "{}"),
    ("sweep", "{}"),
    ("plan", "{}"),
    ("epsilon", "--ledger", "{}"),
]


@pytest.mark.parametrize("command", READING, ids=lambda command: command[0])
@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("absent.toml", "there is no such file or folder"),
        ("folder.toml", "it is a folder, not a file"),
        ("latin.toml", "it is not UTF-8 text"),
        ("file.txt/x.toml", "part of its path is a file"),
        ("x" * 300 + ".toml", "the name is too long"),
    ],
)
def test_files_that_cannot_be_read(call, tmp_path, command, file, words):
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "latin.toml").write_bytes(b'name = "\xe9"\n')
    (tmp_path / "file.txt").write_text("")
    if command[0] == "epsilon" and file in ("folder.toml", "latin.toml"):
        words = "is not a finished run" if file == "folder.toml" else "it is not UTF-8 text"
    code, out, err = call(*(word.format(file) for word in command))
    assert (code, out, len(err.splitlines())) == (2, "", 1), err
    assert words in err
    assert "Errno" not in err


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOSPC, errno.EISDIR, errno.ENAMETOOLONG])
def test_doors_that_refuse(call, monkeypatch, number):
    """Whatever the system says at the doors: reading a file, and making the folder of a run."""

    def refuse(self, *arguments, **options):
        raise OSError(number, os.strerror(number), str(self))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_text", refuse)
        for command in (("run", "x.toml"), ("sweep", "x.toml"), ("plan", "x.toml")):
            code, _, err = call(*command)
            assert (code, len(err.splitlines()), "Errno" in err) == (2, 1, False), err
            assert in_words(OSError(number, "")) in err
    monkeypatch.setattr(Path, "mkdir", refuse)
    code, _, err = call("run", "paper", *TINY, "--out", "there")
    assert (code, "Errno" in err, "is not writable: `there`: " in err) == (2, False, True), err


def test_a_full_disk_in_the_middle_of_a_run(call, monkeypatch):
    from airfl.runs import manifest

    def full(*arguments, **options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(manifest.os, "fsync", full)
    code, _, err = call("--quiet", "run", "paper", *TINY, "--scheme", "fedavg", "--out", "o")
    assert (code, "Errno" in err) == (1, False)
    assert "there is no space left on the disk" in err
    assert len(err.splitlines()) == 1


STUDY = str(experiments_folder() / "studies" / "fig6-airfl.toml")
LIGHT = [
    *(
        ["--version"],
        ["--help"],
        ["-h"],
        ["run", "-h"],
        ["runn"],
        ["presets"],
        ["presets", "demo"],
        ["presets", "papper"],
    ),
    *(["presets", "--json"], ["run", "papper"], ["run", "demo", "--set", "system.runds=3"], ["audit", "papper"]),
    *(["sweep", STUDY, "--dry-run"], ["run", "demo", "--schem", "x"], ["--show-completion"]),
]
#: Prints what is loaded when a command is over.
WATCH = """
import sys
from airfl.cli import main
sys.argv[0] = "airfl"
try:
    main()
finally:
    heavy = {"torch", "matplotlib", "dp_accounting", "scipy", "numpy", "pyarrow", "airfl.analysis", "airfl.runs"}
    print("\\nloaded:", *sorted(heavy & set(sys.modules)), file=sys.stderr)
"""


def watched(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-c", WATCH, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize("arguments", LIGHT, ids=" ".join)
def test_light_commands_load_nothing_heavy(arguments):
    done = watched(*arguments)
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].strip() == "loaded:", done.stderr


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("airfl r", {"run", "report", "reproduce"}),
        ("airfl run pap", {"paper", "paper-noniid"}),
        ("airfl run some", {"some.toml", "somewhere/"}),
        ("airfl presets ", set(preset_names())),
        ("airfl plan urb", {"urban-cell", "urban-micro"}),
        ("airfl run demo --scheme ", set(SCHEMES)),
        ("airfl run demo --accountant ", {"auto", *ACCOUNTANTS}),
        ("airfl audit demo --observer ", set(OBSERVERS)),
        ("airfl design --method ", {*COMBINERS, "all"}),
        ("airfl run demo --set eng", {f"{key}=" for key in setting_keys() if key.startswith("eng")}),
        ("airfl run demo --qu", {"--quiet"}),
        ("airfl sweep so", {"some.toml", "somewhere/"}),
    ],
)
def test_shells_complete(tmp_path, monkeypatch, line, offered):
    (tmp_path / "some.toml").write_text("")
    (tmp_path / "some.csv").write_text("")
    (tmp_path / "somewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    count = len(line.split()) - (not line.endswith(" "))
    done = watched(_AIRFL_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(count))
    assert set(done.stdout.split()) == offered
    assert done.stderr.splitlines()[-1].strip() == "loaded:", done.stderr


def test_scenarios_are_those_of_plans():
    from airfl import linkplan

    assert linkplan.scenario_names() == scenario_names() != []
