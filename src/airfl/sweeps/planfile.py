"""plan.json of a study's folder: what was planned and with which code, checked before anybody builds on it."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import logging
from pathlib import Path
from typing import Any

from airfl.config import Config, from_mapping
from airfl.devices.precision import has_bf16
from airfl.errors import InputError, about_file, in_words
from airfl.imports import require_here
from airfl.privacy.events import NEIGHBOUR_ALIASES
from airfl.runs.lock import LOCK
from airfl.runs.manifest import sweep_up
from airfl.runs.sameness import code_of, processor, require_same_code, warn_other_processor
from airfl.runs.store import write_text
from airfl.study import Plan, Study, find_base, make_plan, make_study
from airfl.sweeps.batch import Folder

PLAN_FORMAT = "airfl-study/2"
#: The base with what the study sets in it, to be read and run; what counts is plan.json.
BASE = "base.toml"
#: Copies for readers, and where plan.json has the SHA-256 of each; older versions had none of the base.
DIGESTS = {"study.toml": "text", BASE: "base_text"}


def open_folder(
    study: Study,
    text: str,
    out: str | Path,
    *,
    resume: bool,
    threads: int,
    anyway: bool = False,
    study_file: Path | None = None,
    base: Config | None = None,
) -> tuple[Plan, Folder]:
    """Plan a study into a folder, or find the plan that is there; any other content is refused.

    Args:
        anyway: go on also with other code than the study was begun with; its receipts will say so.
        study_file: that the study was read from.
        base: of a study that names none; with what the study changes in it.
    """
    folder = Folder(Path(out))
    file = folder.path / "plan.json"
    if file.exists():
        if not resume:
            raise InputError(f"`{out}` holds a study already; add --resume to go on with it, or name another folder")
        stored = _read(file)
        plan = _again(study, stored, study_file) if base is None else make_plan(study, stored["threads"], base)
        require_here(plan.imports)
        return _go_on(plan, text, folder, stored, anyway), folder
    plan = make_plan(study, threads, base, study_file)
    require_here(plan.imports)
    plan.require_room()
    try:
        copies = {"study.toml": text, BASE: plan.base.to_toml()}
        if folder.path.is_dir():
            sweep_up(folder.path)  # a kill may have come before the plan was written
            for item in folder.path.iterdir():
                begun = item.name in copies and _holds(item, copies[item.name])
                if item.name not in (LOCK, ".lock") and not begun:
                    raise InputError(f"the folder `{out}` is not empty and holds no study; name another one")
        folder.path.mkdir(parents=True, exist_ok=True)
        for name, copy in copies.items():
            write_text(folder.path / name, copy)
        content = {"format": PLAN_FORMAT, **plan.fingerprint(), "code": _code(plan), "processor": processor()}
        content |= {DIGESTS[name]: _digest(copy) for name, copy in copies.items()}
        write_text(file, json.dumps({**content, "checksum": _checksum(content)}, indent=1))
    except OSError as error:
        raise InputError(f"the folder `{out}` is not writable: {about_file(error)}") from None
    return plan, folder


def plan_of(study: Study, out: str | Path, *, resume: bool, threads: int, study_file: Path | None = None) -> Plan:
    """The plan that ``open_folder`` would work off; nothing is written, and nothing is compared."""
    file = Path(out) / "plan.json"
    if resume and file.exists():
        return _again(study, _read(file), study_file)
    return make_plan(study, threads, file=study_file)


def find_plan(out: str | Path) -> tuple[Plan, Folder]:
    """The plan of a study folder, to read results with: whatever version wrote it, wherever its base has gone since."""
    folder = Folder(Path(out))
    stored = _read(folder.path / "plan.json")
    base = from_mapping(stored["base"]) if "checksum" in stored else None
    plan = make_plan(make_study(stored["study"]), stored["threads"], base)
    now = plan.fingerprint()
    _require_same({**_planned(stored), "version": ""}, {**now, "version": ""}, out)
    for name, key in DIGESTS.items():
        problem = folder.problem_of(folder.path / name, stored[key]) if key in stored else ""
        if problem and not (name == BASE and _holds(folder.path / name, plan.base.to_toml())):
            raise InputError(
                f"`{out}` is not complete: {problem}; bring it back with: airfl sweep STUDY --out {out} --resume"
            )
    return plan, folder


def _again(study: Study, stored: dict[str, Any], study_file: Path | None) -> Plan:
    """The plan of a study that was begun before; where the file of its base is gone, with the base that was kept."""
    gone = find_base(study, study_file) is None and "checksum" in stored
    return make_plan(study, stored["threads"], from_mapping(stored["base"]) if gone else None, study_file)


def _go_on(plan: Plan, text: str, folder: Folder, stored: dict[str, Any], anyway: bool) -> Plan:
    """The plan, if it is what was begun, by the same code; copies for readers are brought back where they were lost."""
    out = folder.path
    plan.require_room()
    _require_same(_planned(stored), plan.fingerprint(), out)
    now, before = _code(plan), stored.get("code")
    require_same_code(before, out, anyway=anyway, now=now)
    warn_other_processor(stored.get("processor"), out)
    copies = {BASE: plan.base.to_toml()}
    if "text" in stored and stored["text"] == _digest(text):
        copies["study.toml"] = text
    try:
        for name, content in copies.items():
            problem = folder.problem_of(out / name, stored.get(DIGESTS[name], ""))
            if problem and not _holds(out / name, content):
                logging.getLogger("airfl").warning("`%s` is not what was planned; it is written anew", out / name)
                write_text(out / name, content)
    except OSError as error:
        raise InputError(f"the folder `{out}` is not writable: {about_file(error)}") from None
    return plan if before in (None, now) else dataclasses.replace(plan, begun_with=before)


def _code(plan: Plan) -> dict[str, str]:
    """What decides the last bits of a study: the code, and what `auto` makes of convolutions on this CPU."""
    code = code_of(plan.imports)
    models = {
        plan.base.learning.model,
        *(str(point["learning.model"]) for point in plan.points if "learning.model" in point),
    }
    if plan.base.engine.precision == "auto" and not models <= {"logistic", "mlp", "softmax"}:
        code["convolutions on a CPU"] = "bf16" if has_bf16() else "float32"
    return code


def _holds(file: Path, text: str) -> bool:
    return file.is_file() and file.read_bytes() == text.encode()


def _planned(stored: dict[str, Any]) -> dict[str, Any]:
    return {
        key: value for key, value in stored.items() if key not in ("code", "processor", "checksum", *DIGESTS.values())
    }


def _read(file: Path) -> dict[str, Any]:
    """A plan as it was written; one without a checksum is an older version's."""
    try:
        stored: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(stored, dict):
            raise ValueError("it is no JSON object")
    except FileNotFoundError:
        why = f"it has no {file.name}" if file.parent.is_dir() else "there is no such folder"
        raise InputError(f"`{file.parent}` holds no study: {why}; name the folder of a study or a run") from None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"`{file.parent}` holds no study: plan.json cannot be read: {in_words(error)}") from None
    if stored.get("format") != PLAN_FORMAT:
        raise InputError(
            f"`{file}` is not a plan of this version; expected format `{PLAN_FORMAT}`: begin the study in a new folder"
        )
    rest = {key: value for key, value in stored.items() if key != "checksum"}
    kinds = {"study": dict, "base": dict, "threads": int, "version": str, "points": str}
    whole = all(isinstance(stored.get(key), kind) for key, kind in kinds.items())
    if not whole or ("checksum" in stored and stored["checksum"] != _checksum(rest)):
        raise InputError(f"`{file}` is damaged; bring it back from a copy, or begin the study in a new folder")
    del stored["format"]
    return stored


def _require_same(stored: dict[str, Any], now: dict[str, Any], out: str | Path) -> None:
    """Refuse to go on with another study or version, and show where they differ."""
    before, after = (_by_todays_names(item) for item in (_with_todays_keys(stored), json.loads(json.dumps(now))))
    if before == after:
        return
    before, after = (json.dumps(item, indent=1, sort_keys=True).splitlines() for item in (before, after))
    lines = [line for line in difflib.unified_diff(before, after, "folder", "now", n=0, lineterm="") if line[0] in "+-"]
    raise InputError(
        f"`{out}` was made by another study or version; name another folder, or go back to that one; the difference: "
        + "; ".join(lines[2:12])
    )


def _with_todays_keys(stored: dict[str, Any]) -> dict[str, Any]:
    """The same with the defaults of keys that its version did not have yet."""
    try:
        return {**stored, "base": from_mapping(stored["base"]).to_mapping()}
    except InputError:  # a key that is gone
        return stored


def _by_todays_names(value: Any) -> Any:
    """The same plain data, with the relation of neighbours by the name that it has now."""
    if isinstance(value, dict):
        return {key: _by_todays_names(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_by_todays_names(item) for item in value]
    return NEIGHBOUR_ALIASES.get(value, value) if isinstance(value, str) else value


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _checksum(content: dict[str, Any]) -> str:
    return _digest(json.dumps(content, sort_keys=True))
