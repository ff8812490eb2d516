"""The page in a real browser: it draws, fits a phone, and can be read in the dark."""

import json
from itertools import pairwise

import pytest

from tests.experiments.report.browser import executable, launched
from tests.experiments.report.results import result, written
from tests.experiments.report.test_page import contrast
from ucb.experiments.report.page import write_page
from ucb.experiments.report.results import results_at

pytestmark = pytest.mark.skipif(executable() is None, reason="no Chromium is installed")
SIZES = """[...document.querySelectorAll("#VIEW .chart")].map((place) => {
  const box = place.querySelector("svg.main-svg")?.getBoundingClientRect();
  const drawn = place.querySelectorAll("svg.main-svg path, svg.main-svg image").length;
  return box ? [box.width, box.height, drawn] : [0, 0, 0];
})"""
VISIBLE = "[...document.querySelectorAll('.view')].filter((view) => !view.hidden).map((view) => view.id)"
COLOURS = """(() => {
  const two = (number) => (+number).toString(16).padStart(2, "0");
  const hex = (colour) => "#" + colour.match(/\\d+/g).slice(0, 3).map(two).join("");
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const colour = getComputedStyle(node).backgroundColor;
      if (colour !== "rgba(0, 0, 0, 0)") return hex(colour);
    }
    return "#ffffff";
  };
  const words = [...document.querySelectorAll("h1, h2, h3, p, dt, dd, th, td, summary, label, select, code, li")];
  const ticks = [...document.querySelectorAll(".xtick text, .ytick text, .legendtext, .xtitle, .ytitle")];
  return [
    ...words.map((node) => [hex(getComputedStyle(node).color), behind(node)]),
    ...ticks.map((node) => [hex(getComputedStyle(node).fill), behind(node.closest(".chart"))]),
  ];
})()"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with launched(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    long = [f"a rather long name of task number {number}" for number in range(3)]
    runs = [result("ucb", 0), result("ucb", 1, 96.0), result("ewc", 0, tasks=long)]
    write_page(results_at([written(folder / f"{i}.json", run) for i, run in enumerate(runs)]), folder / "page.html")
    return folder / "page.html"


def choose(browser, view):
    """Choose from the menu as a person does, and wait until it is drawn."""
    browser.evaluate(f"menu.value = {json.dumps(view)}; menu.dispatchEvent(new Event('change'))")
    browser.evaluate("new Promise((done) => setTimeout(done, 500))")
    assert browser.evaluate(VISIBLE) == [view]


@pytest.mark.parametrize("dark", [False, True], ids=["day", "night"])
@pytest.mark.parametrize("width", [360, 1200])
def test_every_view_is_drawn_fits_and_can_be_read(browser, path, width, dark):
    browser.open(path, width, dark=dark)
    assert browser.evaluate(VISIBLE) == ["comparison"]
    for view, charts in (("comparison", 6), ("run-0", 7), ("run-2", 7)):
        choose(browser, view)
        browser.evaluate(f"document.querySelectorAll('#{view} details').forEach((each) => {{ each.open = true; }})")
        sizes = browser.evaluate(SIZES.replace("VIEW", view))
        assert len(sizes) == charts
        for across, down, drawn in sizes:
            assert 200 < across <= width
            assert down > 80
            assert drawn > 0
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        pairs = {tuple(pair) for pair in browser.evaluate(COLOURS)}
        assert len(pairs) > 2
        assert min(contrast(*pair) for pair in pairs) >= 4.5
    background = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(18, 20, 23)") == dark
    assert browser.complaints == []
    assert [address for address in browser.requests if not address.startswith(("file:", "data:"))] == []


def test_charts_follow_when_night_falls_and_when_the_window_turns(browser, path):
    browser.open(path, 1200)
    colour = "getComputedStyle(document.querySelector('.ytick text')).fill"
    by_day = browser.evaluate(colour)
    browser.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    browser.evaluate("new Promise((done) => setTimeout(done, 400))")
    assert browser.evaluate(colour) != by_day
    browser.ask("Emulation.setDeviceMetricsOverride", width=360, height=800, deviceScaleFactor=1, mobile=False)
    browser.evaluate("new Promise((done) => setTimeout(done, 800))")
    assert browser.evaluate("document.documentElement.scrollWidth") <= 360
    assert browser.complaints == []


OVERFLOW = """[...document.querySelectorAll("#VIEW .chart")].map(
  (place) => place.querySelector("svg.main-svg").getBoundingClientRect().width - place.clientWidth
)"""


def turned(browser, width, height):
    """Turn the phone, and wait until charts have followed."""
    browser.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=True)
    browser.evaluate("new Promise((done) => setTimeout(done, 800))")


def test_a_chart_that_was_drawn_before_the_phone_was_turned_fits_too(browser, path):
    browser.open(path, 844, 390)
    for width, height in ((844, 390), (390, 844), (844, 390)):
        turned(browser, width, height)
        for view in ("run-2", "comparison"):
            choose(browser, view)
            beyond = browser.evaluate(OVERFLOW.replace("VIEW", view))
            assert len(beyond) > 5
            assert max(map(abs, beyond)) <= 1
        assert browser.evaluate("document.documentElement.scrollWidth") <= width


LABELS = """[...document.querySelectorAll("#comparison .chart")].map((place) => {
  const box = place.getBoundingClientRect();
  return [...place.querySelectorAll(".ytick text")].map((text) => {
    const own = text.getBoundingClientRect();
    return [text.textContent, own.left - box.left, own.right - box.left, own.top, own.bottom];
  });
})"""


@pytest.mark.parametrize("width", [360, 1200])
def test_names_of_many_settings_begin_with_the_method_and_stay_in_their_place(browser, tmp_path, width):
    runs = [result("ucb", 0, 99.0), result("ucb", 0, 98.0), result("ucb-ng", 0, 97.0), result("ewc", 0, 96.0)]
    long = {"importance": "certainty", "on": "both", "a_rather_long_name_<of>_a_setting": 0.125, "temperature": 0.01}
    runs[1]["config"] = runs[1]["config"] | {"settings": long}
    write_page(results_at([written(tmp_path / f"{i}.json", run) for i, run in enumerate(runs)]), tmp_path / "page.html")
    browser.open(tmp_path / "page.html", width)
    charts = browser.evaluate(LABELS)
    assert len(charts) == 6
    for labels in charts:
        assert [text.split(" ")[0].split("(")[0] for text, *_ in labels] == ["ucb", "ucb", "ucb-ng", "ewc"]
        assert "\u2026" in labels[1][0], "the middle is cut"
        assert len(labels[1][0]) > 30
        room = browser.evaluate("document.querySelector('#comparison .chart').clientWidth")
        assert all(left >= 0 and right <= 0.6 * room for _, left, right, _, _ in labels)
        assert all(above[4] <= below[3] + 1 for above, below in pairwise(labels))
    assert browser.complaints == []


def test_an_address_leads_to_a_run(browser, path):
    browser.open(path, 1200)
    browser.evaluate("location.hash = 'run-1'")
    browser.evaluate("new Promise((done) => setTimeout(done, 400))")
    assert browser.evaluate("menu.value") == "run-1"
    assert browser.evaluate(VISIBLE) == ["run-1"]


def test_a_complaint_would_be_heard(browser, tmp_path):
    """The browser of these tests is not deaf: an error of a script, and an address that is refused."""
    page = tmp_path / "bad.html"
    page.write_text("<script>console.error('no'); fail();</script><img src='https://example.invalid/a.png'>")
    browser.open(page, 1200)
    assert len(browser.complaints) >= 2
    assert "https://example.invalid/a.png" in browser.requests
