"""The documentation builds without a warning, needs nothing from elsewhere, and names only what there is."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import pytest
import typer

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
#: What a browser fetches by itself, and where it says from where.
FETCHED = dict.fromkeys(("script", "img", "source", "iframe", "video"), "src") | {"link": "href", "image": "href"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it: a warning is a failure; with `--quiet`, warnings would not be counted."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert built.returncode == 0, built.stderr
    return out


class References(HTMLParser):
    """What a page fetches: (tag, address) for scripts, styles, fonts and images."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = dict(attrs)
        address = said.get(FETCHED.get(tag, ""))
        if address and not (tag == "link" and said.get("rel") in {"canonical", "prev", "next"}):
            self.found.append((tag, address))
        if said.get("srcset"):
            self.found += [(tag, part.split()[0]) for part in str(said["srcset"]).split(",")]


def references(page: Path) -> list[tuple[str, str]]:
    parser = References()
    parser.feed(page.read_text(encoding="utf-8"))
    return parser.found


def test_every_page_is_there(site: Path):
    for page in PAGES:
        assert (site / ("index.html" if page.stem == "index" else f"{page.stem}/index.html")).exists(), page


def test_nothing_is_fetched_from_elsewhere(site: Path):
    """A page can be read without a network: no script, style, font or image has a host."""
    fetched = [(page, tag, address) for page in site.rglob("*.html") for tag, address in references(page)]
    assert len(fetched) > 100
    assert [entry for entry in fetched if urlsplit(entry[2]).netloc] == []
    for sheet in site.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        assert not re.search(r"""(@import|url\()\s*["']?(https?:)?//""", text), sheet


def test_what_is_fetched_exists(site: Path):
    for page in site.rglob("*.html"):
        base = "/" if page.name == "404.html" else f"/{page.parent.relative_to(site).as_posix()}/"
        for tag, address in references(page):
            path = unquote(urlsplit(urljoin(base, address)).path)
            assert address.startswith("data:") or (site / path.lstrip("/")).is_file(), (page, tag, address)


def test_a_number_in_a_table_is_not_broken_from_its_unit(site: Path):
    perk = (site / "perk" / "index.html").read_text(encoding="utf-8")
    for cell in ('<td class="num">27.0 %</td>', '<th class="num">ε = 0.5</th>', '<td class="num">1,200</td>'):
        assert cell in perk
    assert '<td class="num"><strong>85.7 %</strong></td>' in perk
    assert "<td>softmax regression on pixels" in perk


def test_every_image_in_the_sources_exists():
    """Also where no site is built: in the README, and in pages read as they are."""
    for page in [ROOT / "README.md", *PAGES]:
        for name in re.findall(r"!\[[^\]]*\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / name).is_file(), (page, name)


def test_every_figure_is_in_the_gallery():
    named = set(re.findall(r"\(images/([\w.-]+)\)", (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"\(docs/images/([\w.-]+)\)", readme))
    assert named | shown == {path.name for path in (ROOT / "docs" / "images").iterdir()}


def test_formulas_became_mathml(site: Path):
    html = {
        page.stem: (site / page.stem / "index.html").read_text(encoding="utf-8")
        for page in PAGES
        if page.stem != "index"
    }
    assert not [stem for stem, text in html.items() if "arithmatex" in text]
    for stem in ("system", "transceiver", "privacy", "trust", "perk", "plan", "paper"):
        assert 'display="block"' in html[stem] or stem == "paper", stem
        assert html[stem].count("<math") == html[stem].count("</math>") > 0, stem


def test_pages_show_no_raster_where_there_is_an_svg(site: Path):
    """A picture of pixels has one ground and cannot follow the switch between light and dark."""
    drawn = {path.stem for path in (ROOT / "docs" / "images").glob("*.svg")}
    assert len(drawn) > 15
    for page in PAGES:
        named = re.findall(r"\(images/([\w-]+)\.(?:png|jpe?g|gif|webp)\)", page.read_text(encoding="utf-8"))
        assert not drawn & set(named), page
    for page in site.rglob("*.html"):
        fetched = [Path(urlsplit(address).path) for tag, address in references(page) if tag == "img"]
        assert not [path for path in fetched if path.suffix != ".svg" and path.stem in drawn], page


def test_drawings_are_in_the_page(site: Path):
    """Inline, so that they follow the switch between light and dark; each says what it shows."""
    for page in PAGES:
        count = len(re.findall(r"!\[[^\]]+\]\(images/[\w-]+\.svg\)", page.read_text(encoding="utf-8")))
        html = site / ("index.html" if page.stem == "index" else f"{page.stem}/index.html")
        text = html.read_text(encoding="utf-8")
        assert len(re.findall(r'<svg class="drawing" role="img" aria-label="[^"]+"', text)) == count, page
        assert not re.search(r'<img[^>]*images/[^"]*\.svg', text), page


def test_ids_of_drawings_do_not_clash(site: Path):
    """All of them are in the gallery: an id there belongs to one, and whatever is referred to is there."""
    text = (site / "gallery" / "index.html").read_text(encoding="utf-8")
    svgs = re.findall(r'<svg class="drawing".*?</svg>', text, re.DOTALL)
    ids = [found for svg in svgs for found in re.findall(r'\bid="([^"]+)"', svg)]
    assert len(ids) == len(set(ids)) > 100
    for svg in svgs:
        own = set(re.findall(r'\bid="([^"]+)"', svg))
        assert {*re.findall(r"url\(#([^)]+)\)", svg), *re.findall(r'href="#([^"]+)"', svg)} <= own


def test_figures_take_their_colours_from_the_page():
    """Ink, ground and lines are variables, those of lines with a value for light and one for dark that can be seen."""
    from experiments.pictures import DARK, LIGHT

    from airfl.report.html import LEAST_CONTRAST, contrast

    for path in sorted((ROOT / "docs" / "images").glob("*.svg")):
        text = path.read_text(encoding="utf-8")
        if "--least" not in text:
            continue  # drawn by hand
        style = text[: text.index("</style>")]
        assert {"var(--airfl-ink,", "var(--airfl-ground,"} <= set(re.findall(r"var\(--airfl-\w+,", text)), path
        for scheme, ground in (("default", LIGHT), ("slate", DARK)):
            rule = re.search(rf'"{scheme}"\]{{([^}}]*)}}', style)
            assert rule is not None, path
            values = dict(re.findall(r"--(c-[0-9a-f]{6}):(#[0-9a-f]{6})", rule[1]))
            assert set(values) == set(re.findall(r"var\(--(c-[0-9a-f]{6})", text)), (path, scheme)
            assert all(contrast(value, ground) >= LEAST_CONTRAST for value in values.values()), (path, scheme)
        assert "<metadata" not in text, path
        assert len(text) < 200_000, path


def test_the_reference_has_every_public_name(site: Path):
    import airfl

    page = (site / "api" / "index.html").read_text(encoding="utf-8")
    missing = [name for name in airfl.__all__ if not name.startswith("__") and f'id="airfl.{name}"' not in page]
    assert missing == []


def commands_named(text: str) -> set[str]:
    """X of every `airfl X` in code: in a span, or at the beginning of a line of a fenced block."""
    prose, code = [], []
    for k, part in enumerate(re.split(r"^ *```.*$", text, flags=re.MULTILINE)):
        (code if k % 2 else prose).append(part)
    lines = [line.strip().removeprefix("$ ") for part in code for line in part.splitlines()]
    spans = [span for part in prose for span in re.findall(r"`(airfl [^`]*)`", part)]
    return {word for named in [*spans, *lines] for word in re.findall(r"^airfl ([a-z][\w-]*)", named)}


def test_every_command_that_is_named_exists():
    import airfl.cli  # brings the commands in

    commands = {*typer.main.get_command(airfl.cli.app).commands, "runn"}  # the pages' own example of a slip
    assert commands_named("`airfl run x`\n\n```console\n$ airfl plan\nairfl: no\n```\n") == {"run", "plan"}
    named = {page.name: commands_named(page.read_text(encoding="utf-8")) for page in [ROOT / "README.md", *PAGES]}
    assert {page: words - commands for page, words in named.items() if words - commands} == {}
    assert commands <= named["commands.md"]
