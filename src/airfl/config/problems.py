"""What is wrong with a configuration, one sentence each, with the nearest name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, get_args

from pydantic import BaseModel, ValidationError

from airfl.catalogue import nearest
from airfl.errors import Problems
from airfl.wording import number

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


def problems_of(error: ValidationError, model: type[BaseModel]) -> list[str]:
    """Everything that is wrong with plain data for a model, one sentence each."""
    found = error.errors()
    inside = {problem["loc"][:-1] for problem in found}  # a list that is too short, for what is wrong with its items
    counted = [problem for problem in found if problem["type"] != "too_short" or problem["loc"] not in inside]
    return [sentence for problem in counted for sentence in _sentences(problem, model)]


def _sentences(problem: ErrorDetails, model: type[BaseModel]) -> list[str]:
    where = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return [_unknown_key(problem["loc"], model)]
    if problem["type"] == "missing":
        return [f"`{where}` is missing; it must be given"]
    message = re.sub(r"0\.0{4,}\d+", lambda zeros: number(float(zeros[0])), problem["msg"])
    if problem["type"] == "string_pattern_mismatch":  # of a name, the only texts with one
        message = "must be made of letters, digits, `.`, `_` and `-`, and not begin with `-` or be dots alone"
    given = problem.get("ctx", {})
    if problem["type"] == "value_error":
        reason = given["error"]
        found = reason.problems if isinstance(reason, Problems) else (str(reason),)
        return [f"{where + ': ' if where else ''}{text}" for text in found]
    near = ""
    if problem["type"] == "literal_error":
        near = nearest(str(problem["input"]), re.findall(r"'([^']*)'", given["expected"]))
    return [f"`{where}`: {message[0].lower()}{message[1:]}; got {problem['input']!r}{near}"]


def _unknown_key(location: tuple[int | str, ...], model: type[BaseModel]) -> str:
    """With the nearest key: of this section, or of another one that has a key of that very name."""
    *path, key = map(str, location)
    known = _keys_at(path, model)
    elsewhere = [name for name in keys_of(model) if name.endswith(f".{key}")]
    near = f"; did you mean `{elsewhere[0]}`?" if elsewhere else nearest(key, known)
    return f"unknown key `{'.'.join([*path, key])}`" + (near or f"; known keys: {', '.join(known)}")


def _keys_at(path: Sequence[str], model: type[BaseModel]) -> list[str]:
    for part in path:
        inner = _section(model, part)
        if inner is None:
            break
        model = inner
    return [field.alias or name for name, field in model.model_fields.items()]


def _section(model: type[BaseModel], name: str) -> type[BaseModel] | None:
    """The section that a key of a model holds, also one that may be left out."""
    field = model.model_fields.get(name)
    kinds = () if field is None else (field.annotation, *get_args(field.annotation))
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def key_problem(name: str, model: type[BaseModel]) -> str:
    """What is wrong with `section.key` as a key to set; empty if nothing is."""
    section, dot, key = name.partition(".")
    known = keys_of(model)
    if name in model.model_fields or name in known:
        return ""
    if not dot or _section(model, section) is not None:
        return _unknown_key((section, key) if dot else (name,), model)
    near = nearest(name, known) or f"; known sections: {', '.join(model.model_fields)}"
    return f"unknown key `{name}`{near}"


def keys_of(model: type[BaseModel]) -> list[str]:
    """Every key that can be set, as `section.key`."""
    return [
        f"{name}.{key}" if section else name
        for name in model.model_fields
        for section in (_section(model, name),)
        for key in (section.model_fields if section else [name])
    ]
