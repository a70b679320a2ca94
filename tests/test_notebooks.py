"""The notebooks run from the first cell to the last, and are kept with what they show."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[1] / "examples"
NOTEBOOKS = sorted(path.name for path in EXAMPLES.glob("*.ipynb"))


def read(name: str) -> nbformat.NotebookNode:
    return nbformat.read(EXAMPLES / name, as_version=4)


def outputs_of(book: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [output for cell in book.cells if cell.cell_type == "code" for output in cell.outputs]


def test_there_are_three():
    assert NOTEBOOKS == [
        "first-steps.ipynb",
        "what-epsilon-does-my-link-give.ipynb",
        "your-own-model-data-and-combiner.ipynb",
    ]
    assert sum((EXAMPLES / name).stat().st_size for name in NOTEBOOKS) < 600_000


@pytest.mark.parametrize("name", NOTEBOOKS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::RuntimeWarning")
def test_a_notebook_runs(name, tmp_path):
    """By the interpreter of the tests, in an empty folder; an error in a cell is an error here."""
    book = read(name)
    NotebookClient(book, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert not list(tmp_path.iterdir())
    assert kinds(book) == kinds(read(name))  # what is kept is what it shows now


def kinds(book: nbformat.NotebookNode) -> list[list[str]]:
    """For every cell what it shows: texts, tables, pictures. Output to a stream may come in several pieces."""
    shown = [cell.outputs if cell.cell_type == "code" else [] for cell in book.cells]
    return [sorted({kind for output in cell for kind in output.get("data", {"stream": ""})}) for cell in shown]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_kept_with_what_it_shows(name):
    book = read(name)
    cells = [cell for cell in book.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    shown = outputs_of(book)
    figures = [cell for cell in cells if cell.source.endswith(";")]
    assert figures
    assert all(any("image/png" in output.get("data", {}) for output in cell.outputs) for cell in figures)
    assert not [output for output in shown if output.output_type == "error" or output.get("name") == "stderr"]
    assert not re.search(r"/(home|root|work|tmp)/", (EXAMPLES / name).read_text())
