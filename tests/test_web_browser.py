"""The pages in a real browser, Debian's Chromium: dragging, reading, overlays, attacks that do nothing."""

from __future__ import annotations

import json
import shutil
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

pytest.importorskip("starlette")

import uvicorn
from filelock import FileLock

from airfl import linkplan
from airfl.report.html import contrast
from airfl.runs.lock import LOCK
from airfl.runs.manifest import Manifest
from airfl.web import server
from airfl.web.app import make_app
from airfl.web.controls import read_query
from airfl.web.export import Export
from airfl.web.guard import Door
from airfl.web.pages import static_files
from airfl.web.rows import chosen, ordered
from airfl.wording import at_most_text, epsilon_text
from tests.web_folders import make_run, make_study_folder

playwright = pytest.importorskip("playwright.sync_api", reason="Playwright drives the browser: airfl[dev] has it")
CHROMIUM = Path("/usr/bin/chromium")
pytestmark = pytest.mark.skipif(
    not CHROMIUM.exists(), reason="Debian's chromium is not there; `make test` installs it where root and apt are"
)
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip
EVIL = "<img src=x onerror=window.hacked=1><script>window.hacked=1<∕script>"
TOKEN = "a-token-for-the-tests"


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS, headless=True)
        yield found
        found.close()


@contextmanager
def served(root, token=None):
    """The server of `airfl serve` in a thread; yields its address."""
    made = []

    class Server(uvicorn.Server):
        def __init__(self, config):
            super().__init__(config)
            made.append(self)

    with server.listen("127.0.0.1", 0) as listening, pytest.MonkeyPatch.context() as patch:
        patch.setattr(server.uvicorn, "Server", Server)
        port = listening.getsockname()[1]
        app = make_app(root, Door(port=port, token=token))
        thread = threading.Thread(target=server.run_server, args=(app, listening))
        thread.start()
        while not made or not made[0].started:
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            made[0].should_exit = True
            thread.join(10.0)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    found = tmp_path_factory.mktemp("shown")
    make_run(found / "a-run")
    make_study_folder(found / "a-study")
    shutil.copytree(found / "a-run", found / EVIL)
    (found / "claims").mkdir()
    (found / "claims" / "claims.json").write_text(
        json.dumps({EVIL: [{"sentence": EVIL, "verdict": EVIL, "found": EVIL}]})
    )
    (found / "broken").mkdir()
    (found / "broken" / "manifest.json").write_text(EVIL)
    return found


@pytest.fixture(scope="module")
def address(root):
    with served(root) as found:
        yield found


@contextmanager
def opened(browser, **options):
    """A page that may do nothing wrong: no error, no message of the browser's, no request to anywhere else."""
    wrong = []
    context = browser.new_context(**{"viewport": {"width": 1200, "height": 900}, **options})
    page = context.new_page()
    page.set_default_timeout(10_000)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
    page.on("dialog", lambda dialog: (wrong.append("a dialog"), dialog.dismiss()))
    page.on(
        "request", lambda one: wrong.append(one.url) if urlsplit(one.url).hostname not in ("127.0.0.1", None) else None
    )
    try:
        yield page
        assert page.evaluate("window.hacked") is None
        assert wrong == []
    finally:
        context.close()


@pytest.fixture
def page(browser):
    with opened(browser) as found:
        yield found


def settled(page):
    """Wait until the planner shows the answer to what its query asks."""
    page.wait_for_function(
        "() => { const { want, of } = document.querySelector('#shown').dataset;"
        " return of === want && location.search.slice(1) === want; }"
    )


def answer_of(page):
    """What `airfl plan` says to the page's own query."""
    asked = read_query(parse_qsl(urlsplit(page.url).query))
    given = asked.given
    return linkplan.plan(asked.scenario, given, asked.solve_for, given.pop("tolerated", None))


def check_shown(page):
    """Every number on the page is the command's, to the last digit shown."""
    found = answer_of(page)
    for observer, epsilon in found.epsilon.items():
        row = page.locator(f"#observers tr[data-observer={observer}]")
        assert row.locator(".free").inner_text() == epsilon_text(epsilon)
        assert row.locator(".kept").inner_text() == epsilon_text(found.epsilon_kept[observer])
    assert f"{found.margin_db:+.1f} dB".replace("-", "−") in page.locator("#verdict").inner_text()
    star = page.locator("#phase .star")
    assert float(star.get_attribute("data-x")) == found.quantities.devices
    assert float(star.get_attribute("data-y")) == pytest.approx(found.snr_db, rel=1e-12)
    return found


# ------------------------------------------------------------------------------------------------ the planner


def test_drag_and_read(page, address, call):
    page.goto(f"{address}/plan?scenario=satellite-iot")
    settled(page)
    before = check_shown(page)
    slide = page.locator(".control[data-name=power-dbm] .slide")
    box = slide.bounding_box()
    before_star = page.locator("#phase .star").get_attribute("d")
    page.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + box["height"] / 2)
    page.mouse.down()
    for share in (0.72, 0.78, 0.83, 0.9):
        page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2)
    page.wait_for_function("old => document.querySelector('#phase .star').getAttribute('d') !== old", arg=before_star)
    page.mouse.up()
    page.wait_for_url("**power-dbm=*")
    settled(page)
    after = check_shown(page)
    assert after.epsilon["models"] > 2 * before.epsilon["models"]
    assert "not a perk" in page.locator("#verdict").inner_text()
    code, out, _ = call(*page.locator("#command").input_value().split()[1:], "--json")
    assert code == 0
    assert json.loads(out)["epsilon"] == after.epsilon
    page.locator(".control[data-name=devices] .slide").focus()  # by keyboard
    for _ in range(30):
        page.keyboard.press("ArrowRight")
    page.wait_for_url("**devices=*")
    settled(page)
    assert check_shown(page).quantities.devices > 6000


def test_type_choose_and_let_go(page, address):
    page.goto(f"{address}/plan?scenario=urban-cell")
    settled(page)
    page.get_by_label("Bandwidth, MHz", exact=True).fill("12.5")
    page.keyboard.press("Tab")
    page.wait_for_url("**bandwidth=12500000")
    settled(page)
    assert check_shown(page).quantities.bandwidth_hz == 12.5e6
    page.get_by_label("Neighbours", exact=True).select_option("zero-out")
    page.wait_for_url("**neighbours=zero-out*")
    settled(page)
    assert check_shown(page).quantities.relation == "zero-out"
    page.get_by_label("Bandwidth: as it was", exact=True).click()
    page.wait_for_url(lambda url: "bandwidth" not in url)
    settled(page)
    assert check_shown(page).quantities.bandwidth_hz == 20e6
    page.get_by_label("Worst-case SNR, dB", exact=True).fill("-70")  # in place of a distance that was given
    settled(page)
    assert check_shown(page).snr_db == -70.0


def test_a_link_brings_it_all_back(page, browser, address):
    query = {"scenario": "satellite-iot", "power-dbm": "11.5", "devices": "900", "solve-for": "antennas"}
    page.goto(f"{address}/plan?{urlencode(query)}")
    settled(page)
    found = check_shown(page)
    assert str(found.quantities.antennas) in page.locator("#solved").inner_text()
    assert page.locator("#solve [aria-pressed=true]").inner_text() == "antennas"
    with opened(browser) as other:
        other.goto(page.locator("#link").input_value())
        settled(other)
        assert other.locator("#shown").inner_text() == page.locator("#shown").inner_text()
        assert other.get_by_label("Devices n", exact=True).input_value() == "900"
        other.locator("#solved button").click()  # take it as given
        other.wait_for_url(f"**antennas={found.quantities.antennas}")
        settled(other)
        assert "solve-for" not in other.url


def test_wrong_words_are_a_sentence(browser, address):
    """The answer is 400, which the browser notes in its console; the page says why, and goes on."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{address}/plan?scenario=urban-cell&power-dbm={EVIL}")
    page.locator("#problem").wait_for()
    assert "must be a number" in page.locator("#problem").inner_text()
    page.locator("#reset").click()
    page.locator("#problem").wait_for(state="hidden")
    settled(page)
    check_shown(page)
    assert page.evaluate("window.hacked") is None
    context.close()


# ------------------------------------------------------------------------------------------------ runs


def test_open_a_run_overlay_two_follow_a_link(page, browser, address):
    page.goto(f"{address}/runs?in=a-run")
    page.get_by_role("link", name="airfl-dp").click()
    page.wait_for_selector("#charts .line")
    assert page.locator("#charts figure").count() == 5
    assert "AirFL-DP" in page.locator("#said").inner_text()
    summary = page.locator("#ledgers summary").first
    summary.click()
    assert "proven" in page.locator("#ledgers details").first.inner_text()
    page.go_back()
    page.goto(f"{address}/runs?q=airfl-dp")
    page.locator("#rows tbody tr").first.wait_for()
    page.locator("#rows tr", has_text="power_w = 0.001").first.get_by_role("checkbox").check()
    page.locator("#rows tr", has_text="a-run").last.get_by_role("checkbox").check()
    page.get_by_role("button", name="Lay over each other").click()
    page.wait_for_url("**/view?row=*row=*")
    page.wait_for_selector("#charts .line.s1")
    assert page.locator("#charts figure").first.locator("path.line").count() == 2
    assert page.locator("#legend li").count() == 2
    assert "What differs" in page.locator("#config").inner_text()
    chart = page.locator("#charts svg").first
    chart.focus()
    page.keyboard.press("Home")
    assert page.locator("#charts .reading").first.inner_text().startswith("round 1:")
    with opened(browser) as other:
        other.goto(page.url)
        other.wait_for_selector("#charts .line.s1")
        assert other.locator("#legend").inner_text() == page.locator("#legend").inner_text()
    with page.expect_download() as got:
        page.get_by_role("link", name="config.toml").first.click()
    assert "[system]" in Path(got.value.path()).read_text()


def test_filter_and_sort(page, address):
    page.goto(f"{address}/runs")
    page.get_by_label("Filter").fill("a-study power_w=0.001")
    page.wait_for_url("**q=a-study*")
    page.wait_for_function("() => document.querySelector('#count').textContent.startsWith('4 of 12')")
    page.get_by_role("button", name="Accuracy").click()
    page.wait_for_url("**sort=-accuracy*")
    page.wait_for_selector("th[aria-sort=descending]")
    shown = [float(text.split()[0]) for text in page.locator("#rows tbody td.accuracy").all_inner_texts()]
    assert shown == sorted(shown, reverse=True)
    assert len(shown) == 4


def test_markup_in_every_name_does_nothing(page, address):
    page.goto(f"{address}/runs?{urlencode({'q': EVIL})}")
    page.wait_for_selector("#folders tbody tr")
    assert EVIL in page.locator("#folders").inner_text()
    assert page.locator("#folders .state.damaged").count() == 1
    page.locator("#claims summary").click()
    assert EVIL in page.locator("#claims").inner_text()
    assert page.locator("main img").count() == 0
    page.goto(f"{address}/view?{urlencode([('row', f'{EVIL}:airfl-dp'), ('row', 'a-run:fedavg'), ('row', EVIL)])}")
    page.wait_for_selector("#charts .line")
    assert EVIL in page.locator("#legend").inner_text()
    assert EVIL in page.locator("#problem").inner_text()


def test_a_folder_that_is_being_written_updates_itself(page, root, address):
    folder = root / "growing"
    shutil.copytree(root / "a-run", folder)
    whole = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(Manifest({}, ("rounds.parquet", "summary.json")).text())
    row = page.locator("#folders tr", has_text="growing")
    try:
        with FileLock(folder / LOCK):
            page.goto(f"{address}/runs")
            row.locator(".state.writing").wait_for()
            (folder / "manifest.json").write_text(whole)
        (folder / LOCK).unlink(missing_ok=True)
        row.locator(".state.done").wait_for()
    finally:
        shutil.rmtree(folder)


def test_a_token_is_asked_for(browser, root):
    with served(root, TOKEN) as address:
        context = browser.new_context()
        page = context.new_page()
        assert page.goto(f"{address}/runs").status == 401
        page.get_by_label("Token").fill("a guess")
        page.get_by_role("button", name="Go on").click()
        page.get_by_text("That is not the token.").wait_for()
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button", name="Go on").click()
        page.wait_for_selector("#rows tbody tr")
        assert TOKEN not in page.url
        (cookie,) = context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        # Another origin's page: its requests bring no cookie and get no answer, and it cannot frame us.
        other = context.new_page()
        with served(None) as elsewhere:
            other.goto(f"{elsewhere}/plan".replace("127.0.0.1", "localhost"))
            said = other.evaluate(
                "url => fetch(url, {credentials: 'include'}).then(() => 'read', () => 'refused')", address
            )
        assert said == "refused"
        context.close()


# ------------------------------------------------------------------------------------------------ an export


def test_an_export_opens_from_disk(browser, root, address, tmp_path):
    export = Export(root, tmp_path / "out")
    export.write(lambda count: None)
    all_rows = [dict(row) for row in export._snapshot.rows]
    with opened(browser) as page:
        page.goto((tmp_path / "out" / "index.html").as_uri())
        page.wait_for_selector("#rows tbody tr")
        for wanted, by in (("", ""), ("airfl accuracy>5%", "-accuracy"), ("power_w<=1e-9 mrc", "epsilon"),
                           ("epsilon=∞", ""), ("scheme=AIRFL-DP epsilon<60", "-power_w"), ("a-study", "combiner"),
                           ("", "-epsilon"), ("trials>1 kind=run", "scheme"), ("1e-9 -", "")):  # fmt: skip
            script = "([q, by]) => airfl.ordered(airfl.chosen(window.airflIndex.rows, q, ''), by).map((row) => row.id)"
            assert page.evaluate(script, [wanted, by]) == [
                row["id"] for row in ordered(chosen(all_rows, wanted), by)
            ], wanted
        page.locator("#rows tr", has_text="a-run").first.get_by_role("checkbox").check()
        page.locator("#rows tr", has_text="a-study").last.get_by_role("checkbox").check()
        page.get_by_role("button", name="Lay over each other").click()
        page.wait_for_selector("#charts .line.s1")
        assert page.url.startswith("file:")
        legend = page.locator("#legend").inner_text()
        query = urlsplit(page.url).query
    with opened(browser) as page:
        page.goto(f"{address}/view?{query}")
        page.wait_for_selector("#charts .line.s1")
        assert page.locator("#legend").inner_text() == legend


def test_numbers_are_written_alike(page, address):
    """ε in scripts is rounded as it is everywhere else: up."""
    page.goto(f"{address}/runs")
    values = [
        0.0123456,
        0.45251,
        1.0,
        1.00001,
        7.999,
        19.23,
        50.0,
        73.31,
        999.4,
        999.6,
        1234.2,
        13664.2,
        99999.1,
        131000.0,
        2.07e9,
    ]
    found = page.evaluate("values => values.map(airfl.epsilon)", values)
    assert found == [at_most_text(value) for value in values]


# ------------------------------------------------------------------------------------------------ for everybody


@pytest.mark.parametrize(
    "where", ["/plan?scenario=urban-cell", "/runs", "/view?row=a-run:airfl-dp&row=a-study:1:airfl-dp"]
)
def test_pages_fit_and_name_what_they_have(browser, address, where):
    with opened(browser) as page:
        page.goto(f"{address}{where}")
        page.wait_for_selector("#observers tbody tr, #rows tbody tr, #charts .line")
        for width in (400, 900, 2000):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        nameless = page.evaluate(
            "() => [...document.querySelectorAll('input, select, textarea, button, svg.chart')].filter((one) =>"
            " !(one.labels && one.labels.length) && !one.getAttribute('aria-label') && !one.textContent.trim())"
            ".map((one) => one.outerHTML)"
        )
        assert nameless == []
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.keyboard.press("Tab")
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def palettes():
    """The colours of the style sheet by name, light and dark."""
    text = static_files()["airfl.css"].decode()
    found = []
    for block in text.split(":root {")[1:3]:
        pairs = [part.split(":") for part in block[: block.index("}")].split(";") if "--" in part]
        found.append({name.strip(): value.strip() for name, value in pairs})
    return found


def test_contrast_is_enough_by_day_and_by_night():
    """WCAG 2.1 AA: 4.5 for text, 3 for lines and edges of fields."""

    def full(color):
        return color if len(color) == 7 else "#" + "".join(2 * letter for letter in color[1:])

    light, dark = palettes()
    assert set(light) == set(dark)
    for colors in (light, dark):
        for ground in ("--page", "--panel"):
            for ink in ("--ink", "--soft", "--link", "--good", "--bad"):
                assert contrast(full(colors[ink]), full(colors[ground])) >= 4.5, (ink, ground)
        for ink, ground in (("--good", "--good-panel"), ("--bad", "--bad-panel"), ("--ink", "--bad-panel")):
            assert contrast(full(colors[ink]), full(colors[ground])) >= 4.5, (ink, ground)
        assert contrast("#ffffff", full(colors["--head"])) >= 4.5
        for line in (*(f"--s{k}" for k in range(8)), "--field", "--star"):
            assert contrast(full(colors[line]), full(colors["--page"])) >= 3.0, line
