"""Studies that were damaged, and studies that are odd: each ends with the right numbers or is refused in a sentence."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tomli_w

from tests.fuzz.flips import flip_bit
from tests.fuzz.inprocess import Ended, call
from tests.fuzz.tally import Outcome, Tally

STUDY: dict[str, Any] = {
    "name": "small",
    "base": "paper",
    "schemes": ["airfl-mimo", "airfl-dp"],
    "trials": 2,
    "rows_per_batch": 2,
    "set": {
        "system.num_devices": 6,
        "system.num_antennas": 8,
        "system.participation": 1.0,
        "system.rounds": 3,
        "learning.dataset": "digits",
        "learning.split": "standard",
        "learning.model": "softmax",
        "learning.local_steps": 2,
        "learning.learning_rate": 0.1,
        "learning.clip_norm": 1.0,
        "privacy.accountant": "gaussian",
        "scheme.combiner": "zero-forcing",
    },
    "grid": {"privacy.epsilon": [5.0, 50.0]},
}


# Damage: each takes a generator, the file and all files of the study.
def _flip(draw: random.Random, path: Path, files: list[Path]) -> None:
    flip_bit(draw, path)


def _truncate(draw: random.Random, path: Path, files: list[Path]) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: draw.randrange(len(data) + 1)])


def _delete(draw: random.Random, path: Path, files: list[Path]) -> None:
    path.unlink()


def _swap(draw: random.Random, path: Path, files: list[Path]) -> None:
    other = draw.choice([item for item in files if item.suffix == path.suffix])
    first, second = path.read_bytes(), other.read_bytes()
    path.write_bytes(second)
    other.write_bytes(first)


def _garbage(draw: random.Random, path: Path, files: list[Path]) -> None:
    path.write_bytes(draw.choice([draw.randbytes(200), b"{}", b"[]", b"null", b"[" * 50_000, b'{"format": 1}', b"\0"]))


def _number(draw: random.Random, path: Path, files: list[Path]) -> None:
    """Another digit somewhere: text that still reads, and says something else."""
    data = bytearray(path.read_bytes())
    places = [place for place, byte in enumerate(data) if 48 <= byte <= 57]
    if places:
        data[draw.choice(places)] = 48 + draw.randrange(10)
    path.write_bytes(bytes(data))


def _folder(draw: random.Random, path: Path, files: list[Path]) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: tuple[Callable[[random.Random, Path, list[Path]], None], ...] = (
    *(_flip, _flip, _truncate, _delete, _swap, _garbage, _number, _folder),
)
SORTS = (
    "parts/*.parquet",
    "parts/*.json",
    "parts/*.gz",
    "plan.json",
    "study.toml",
    "base.toml",
    "checkpoints/*/*",
    "*.parquet",
    "*.json",
    "*.csv",
)


def _finished(root: Path) -> tuple[Path, Path]:
    """A finished study, and the same one interrupted with checkpoints; both with their file ``s.toml`` beside them."""
    from airfl import runs, sweeps
    from airfl.study import read_study
    from airfl.sweeps.batch import Stopped, run_batch

    (root / "s.toml").write_text(tomli_w.dumps(STUDY))
    ended = call("sweep", "s.toml", "--out", "whole", "--json", folder=root)
    assert ended.code == 0, ended.error
    study, text = read_study(root / "s.toml")
    with runs.locked(root / "half"):
        plan, folder = sweeps.open_folder(study, text, root / "half", resume=False, threads=1)
        run_batch(plan, plan.batches[0], folder)
        left = [2]

        def stop() -> bool:
            left[0] -= 1
            return left[0] == 0

        with contextlib.suppress(Stopped):
            run_batch(plan, plan.batches[1], folder, every_rounds=1, should_stop=stop)
    return root / "whole", root / "half"


def _for_readers(folder: Path) -> dict[str, bytes]:
    """Files that people read, to the bit; they are the same whenever and wherever a study is run."""
    names = ("study.toml", "base.toml", "results.parquet", "summary.csv")
    return {name: (folder / name).read_bytes() for name in names if (folder / name).is_file()}


def damaged_studies(count: int, seed: int) -> Tally:
    """Damage a small study in ``count`` ways, then call report, status and sweep --resume.

    Reading must give the right rows or a refusal, and change nothing; going on must end with the right results, to the
    bit, or a refusal.
    """
    tally = Tally()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        whole, half = _finished(root)
        right = _right(whole, half)
        for number in range(seed, seed + count):
            draw = random.Random(number)
            source = draw.choice([whole, whole, half])
            hurt = _copy(source)
            done = _damage(draw, hurt)
            outcome, seen = _judge(hurt, source, right)
            tally.count(outcome, number, f"{done} of `{source.name}`: {seen}")
    return tally


def study_flips(count: int, seed: int, folder: Path) -> Tally:
    """``count`` flipped bits, spread over the files of a finished study and of one that was interrupted.

    What reading depends on, or people read, is named by report and status; a checkpoint is looked at when it is needed.
    """
    tally = Tally()
    studies = _finished(folder)
    files = [(study, path) for study in studies for path in sorted(study.rglob("*")) if path.is_file()]
    right = _right(*studies)
    for number in range(seed, seed + count):
        source, path = files[number % len(files)]
        hurt = _copy(source) / path.relative_to(source)
        place = flip_bit(random.Random(number), hurt)
        named = f"`{hurt.name}` of `{source.name}`, bit {place}"
        outcome, seen = _judge(folder / "hurt", source, right, said=None if "checkpoints" in hurt.parts else hurt.name)
        tally.count(outcome, number, f"{named}: {seen}")
    return tally


def _right(*studies: Path) -> dict[Path, dict[str, Any]]:
    """What is reported of studies as they were written."""
    return {study: json.loads(call("report", study.name, "--json", folder=study.parent).out) for study in studies}


def _copy(source: Path) -> Path:
    hurt = source.parent / "hurt"
    shutil.rmtree(hurt, ignore_errors=True)
    shutil.copytree(source, hurt)
    return hurt


def _damage(draw: random.Random, hurt: Path) -> str:
    said = []
    for _ in range(draw.choice([1, 1, 1, 2, 4])):
        files = [path for path in sorted(hurt.glob(draw.choice(SORTS))) if path.is_file()]
        if files:
            path, damage = draw.choice(files), draw.choice(DAMAGES)
            damage(draw, path, files)
            said.append(f"{damage.__name__[1:]} {path.relative_to(hurt)}")
    return ", ".join(said) or "nothing"


def _judge(hurt: Path, source: Path, right: dict[Path, dict[str, Any]], said: str | None = None) -> tuple[Outcome, str]:
    """How a copy of a study ends that was damaged.

    Args:
        right: what is reported of the whole study and of the source.
        said: what reading must name.
    """
    root, before = hurt.parent, _content(hurt)
    refused = False
    for command in ("report", "status"):
        ended = call(command, hurt.name, "--json", folder=root)
        bad = _broken(ended)
        if bad:
            return bad, f"{command}: {ended.error[-300:]}"
        if ended.code == 0 and not _as_good(json.loads(ended.out), right[source]):
            return "silent_difference", f"{command}: {ended.out[:200]}"
        if ended.code == 0 and _for_readers(hurt) != _for_readers(source):
            return "silent_difference", f"{command}: nothing is said of files that people read"
        if said is not None and (ended.code == 0 or said not in ended.error):
            return "silent_difference", f"{command} does not name {said}: {ended.error}"
        if _content(hurt) != before:
            return "silent_difference", f"{command} changed the folder"
        refused |= ended.code == 2
    ended = call("sweep", "s.toml", "--out", hurt.name, "--resume", "--json", folder=root)
    bad = _broken(ended)
    if bad:
        return bad, f"resume: {ended.error[-300:]}"
    if ended.code == 0:
        whole = root / "whole"
        if _for_readers(hurt) != _for_readers(whole):
            return "silent_difference", "resume: other files for readers"
        again = call("report", hurt.name, "--json", folder=root)
        if again.code != 0 or json.loads(again.out) != right[whole]:
            return "silent_difference", f"resume: {again.out[:200]} {again.error[-300:]}"
    return ("refused" if refused or ended.code == 2 else "ok"), ""


def _as_good(said: dict[str, Any], right: dict[str, Any]) -> bool:
    """The right rows; or fewer cells than there were, and that is said.

    A study that has lost all traces of a batch is one that is not finished yet.
    """
    if said["done"] < right["done"]:
        return said["done"] + said["failed"] < said["cells"]
    return all(said[key] == value for key, value in right.items() if key in said)


def _broken(ended: Ended) -> Outcome | None:
    if ended.hung:
        return "hang"
    return None if ended.code == 0 or ended.refused else "traceback"


def _content(folder: Path) -> dict[str, bytes]:
    return {
        str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".lock"
    }
