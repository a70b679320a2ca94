"""The house keeps its own rules: one order of rooms, a map that fits on a page."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def linted() -> list[str]:
    """The linter's layers, first what imports nothing."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    return layers[::-1]


def test_readme_docs_and_linter_have_one_order():
    readme = (ROOT / "README.md").read_text()
    listing = re.search(r"```\nsrc/airfl/\n(.*?)```", readme, re.DOTALL).group(1)
    assert [line.split()[0].removesuffix("/").removesuffix(".py") for line in listing.splitlines()] == linted()
    docs = (ROOT / "docs" / "extending.md").read_text()
    sentence = re.search(r"before it in this order: (.*?)\. `privacy`", docs, re.DOTALL).group(1)
    assert re.findall(r"`(\w+)`", sentence) == linted()


def test_the_order_names_every_room():
    rooms = {
        path.stem
        for path in (ROOT / "src" / "airfl").iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert rooms - {"__init__"} == set(linted())


def test_every_folder_says_what_goes_in_and_out():
    for path in (ROOT / "src" / "airfl").glob("*/__init__.py"):
        words = path.read_text().split('"""')[1]
        assert re.search(r"\bIn: .*Out: .*(Imports|May import|Loads)", words, re.DOTALL), path


def test_the_map_fits_on_a_page():
    assert len((ROOT / "src" / "airfl" / "simulate.py").read_text().splitlines()) < 150
