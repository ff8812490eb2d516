"""The page as a file, and the command that writes it."""

import importlib.util
import json
import re
import resource
from html.parser import HTMLParser

import pytest

from tests.experiments.report.results import MATRIX, result, written
from tests.support import ucb
from ucb.cli.run import leave_report
from ucb.cli.terminal import console
from ucb.experiments.report import page
from ucb.experiments.report.charts import BLUE, DARK, ORANGE, PALE
from ucb.experiments.report.page import page_of
from ucb.experiments.report.results import results_at

LOADING = {"src", "href", "srcset", "data", "action", "poster"}


class Reader(HTMLParser):
    """Keeps the attributes that would load something, and what the page says."""

    def __init__(self, text):
        super().__init__()
        self.loads, self.options, self.cells, self.inside = [], [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.inside = tag
        self.loads += [(tag, name, value) for name, value in attributes if name in LOADING]

    def handle_data(self, data):
        if self.inside == "option":
            self.options.append(data)
        elif self.inside == "td":
            self.cells.append(data)

    def handle_endtag(self, tag):
        self.inside = ""


def found(tmp_path, *results):
    return results_at([written(tmp_path / f"{i}.json", value) for i, value in enumerate(results)])


def own_part(text):
    """The page without plotly's JavaScript, which names addresses of maps that nobody draws."""
    return re.sub(r"<script>/\*\*.*?</script>", "", text, count=1, flags=re.DOTALL)


def charts_in(text):
    (data,) = re.findall(r'<script type="application/json" id="charts">(.*?)</script>', text, re.DOTALL)
    return json.loads(data)


def test_nothing_is_loaded_from_anywhere(tmp_path):
    text = page_of(found(tmp_path, result(), result(seed=1)))
    ours = own_part(text)
    assert len(text) - len(ours) > 1_000_000, "plotly is inside"
    assert Reader(ours).loads == []
    assert "http" not in ours.replace("http-equiv", "")
    assert "@import" not in ours
    assert "url(" not in ours
    assert "default-src 'none'" in ours, "the browser is told to refuse what is not inside"


def test_every_chart_is_in_the_page_with_its_figures(tmp_path):
    text = page_of(found(tmp_path, result()))
    charts = charts_in(text)
    assert len(charts) == 7 == text.count('class="chart"')
    assert [[value for value in row if value is not None] for row in charts[0]["data"][0]["z"]] == MATRIX
    reader = Reader(own_part(text))
    assert reader.options == ["mnist-5split, ucb, seed 0"]
    assert {"99.00", "96.50", "0.7500", "-"} <= set(reader.cells)


def test_several_runs_have_a_comparison_and_a_menu(tmp_path):
    text = page_of(found(tmp_path, result(), result(seed=1), result("ewc")))
    assert Reader(own_part(text)).options == [
        "Comparison of all runs",
        *(f"mnist-5split, {name}" for name in ("ucb, seed 0", "ucb, seed 1", "ewc, seed 0")),
    ]
    assert len(charts_in(text)) == 6 + 3 * 7


def test_names_from_outside_are_words_and_not_markup(tmp_path):
    hostile = "</script><img src=x onerror=alert(1)>"
    text = page_of(found(tmp_path, result(tasks=[hostile, "b", "c"], benchmark=hostile, device=hostile)))
    ours = own_part(text)
    assert "<img" not in ours
    assert Reader(ours).loads == []
    assert len(charts_in(text)) == 7


def test_the_configuration_shows_zeros_and_leaves_out_what_was_not_asked_for(tmp_path):
    chosen = {"seed": 0, "blur": 0.0, "settings": {"clip": 0}, "single_head": False, "net": None, "data": []}
    whole = result()
    text = page_of(found(tmp_path, whole | {"config": whole["config"] | chosen}))
    (card,) = re.findall(r"<h3>Configuration</h3>(.*?)</section>", text, re.DOTALL)
    shown = dict(re.findall(r'<th scope="row">(.*?)</th><td>(.*?)</td>', card))
    assert {name: shown.get(name) for name in ("seed", "blur", "clip")} == {"seed": "0", "blur": "0.0", "clip": "0"}
    assert not {"single_head", "net", "data"} & shown.keys()


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(a, b):
    """The ratio that WCAG 2 defines: 4.5 is asked of text, 3 of lines."""
    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("night", [False, True])
def test_colours_stand_out_by_day_and_by_night(night):
    style = page.files("ucb.experiments.report").joinpath("page.css").read_text()
    day, dark = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    colours = dict(re.findall(r"--([\w-]+): (#\w{6})", dark if night else day))
    for behind in ("page", "card"):
        for text in ("text", "muted", "link"):
            assert contrast(colours[text], colours[behind]) >= 4.5
        for line in range(1, 9):
            assert contrast(colours[f"colour-{line}"], colours[behind]) >= 3


def test_figures_stand_out_in_heat_maps():
    assert min(contrast(DARK, colour) for colour in (BLUE, PALE, ORANGE)) >= 7


@pytest.fixture
def without_plotly(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == "plotly" else find(name, *more)
    )


def test_the_command_writes_the_page(tmp_path):
    written(tmp_path / "runs" / "a" / "result.json", result())
    answer = ucb("report", tmp_path / "runs", "-o", tmp_path / "new" / "page.html")
    assert answer.exit_code == 0, answer.output
    assert "1 run in" in answer.stdout
    assert len(charts_in((tmp_path / "new" / "page.html").read_text())) == 7


def test_the_command_leaves_out_what_is_not_done_with_a_line(tmp_path):
    written(tmp_path / "runs" / "done" / "result.json", result())
    for number in range(7):
        written(tmp_path / "runs" / f"cut{number}" / "config.json", {"method": "ucb"})
    page = tmp_path / "page.html"
    for places in ([tmp_path / "runs"], sorted((tmp_path / "runs").iterdir())):
        answer = ucb("report", *places, "-o", page)
        assert answer.exit_code == 0, answer.output
        first, last = answer.stdout.splitlines()
        assert first.startswith(f"left out, as there is no result yet: {tmp_path / 'runs' / 'cut0'}, ")
        assert first.endswith(f"{tmp_path / 'runs' / 'cut4'} and 2 more")
        assert last == f"1 run in {page}"
    page.unlink()
    answer = ucb("report", tmp_path / "runs" / "cut0", "-o", page)
    assert answer.exit_code == 2
    assert "is not done" in answer.stderr
    assert not page.exists()


def test_the_command_writes_over_no_result_that_it_reads(tmp_path):
    """Under whatever name: the file itself, a link to it, or a copy that counts as the same run."""
    run = written(tmp_path / "runs" / "a" / "result.json", result())
    copy = written(tmp_path / "results" / "a-seed0.json", result())
    link, twin = tmp_path / "link.html", tmp_path / "twin.html"
    link.symlink_to(run)
    twin.hardlink_to(run)
    before = run.read_bytes()
    for out in (run, run.parent / ".." / "a" / "result.json", link, twin, copy):
        answer = ucb("report", run.parent, copy.parent, "-o", out)
        assert answer.exit_code == 2, answer.output
        assert answer.stderr == f"error: {out} is one of the results: name another file\n"
        assert run.read_bytes() == copy.read_bytes() == before
    page = tmp_path / "page.html"
    for _ in range(2):
        assert ucb("report", run.parent, "-o", page).exit_code == 0, "an earlier page is written over"


def test_without_plotly_one_sentence_says_how_to_get_it(tmp_path, without_plotly):
    path = written(tmp_path / "result.json", result())
    answer = ucb("report", path, "-o", tmp_path / "page.html")
    assert answer.exit_code == 1
    assert answer.stderr == "error: a report needs plotly, which is not installed: pip install 'ucb[report]'\n"
    assert not (tmp_path / "page.html").exists()


def test_a_wrong_place_is_one_sentence(tmp_path):
    answer = ucb("report", tmp_path / "nowhere")
    assert answer.exit_code == 2
    assert len(answer.stderr.splitlines()) == 1
    assert "Traceback" not in answer.stderr
    assert not (tmp_path / "report.html").exists()


SMALL = ["run", "mnist-5split", "--tasks", "2", "--epochs", "1", "--hidden", "8", "--samples", "1"]
SMALL += ["--set", "eval_samples=1"]


def test_a_run_leaves_its_page_with_sigma_and_calibration(tmp_path):
    answer = ucb(*SMALL, "--out", tmp_path / "run")
    assert answer.exit_code == 0, answer.output
    assert f"charts are in {tmp_path / 'run' / 'report.html'}" in answer.stdout
    assert len(charts_in((tmp_path / "run" / "report.html").read_text())) == 7
    found = json.loads((tmp_path / "run" / "result.json").read_text())
    assert len(found["sigma_by_task"]) == 2
    assert found["sigma_by_task"][0] | found["sigma_by_task"][1] == found["sigma"]
    for ece, curve in zip(found["ece"], found["calibration"], strict=True):
        columns = list(zip(curve["count"], curve["confidence"], curve["accuracy"], strict=True))
        total = sum(curve["count"])
        assert sum(n * abs(said - right) for n, said, right in columns) / total == pytest.approx(ece, abs=1e-6)
    right = [sum(n * a for n, a in zip(c["count"], c["accuracy"], strict=True)) for c in found["calibration"]]
    totals = [sum(curve["count"]) for curve in found["calibration"]]
    for hits, total, accuracy in zip(right, totals, found["accuracy_matrix"][-1], strict=True):
        assert 100 * hits / total == pytest.approx(accuracy)


def test_a_run_without_plotly_says_how_to_make_the_page_later(tmp_path, without_plotly):
    folder = tmp_path / "a run"
    answer = ucb(*SMALL, "--out", folder)
    assert answer.exit_code == 0, answer.output
    words = f"ucb report '{folder}' -o '{folder / 'report.html'}'"
    assert answer.stdout.splitlines()[-1] == f"for a page with charts: pip install 'ucb[report]', then {words}"
    assert not (folder / "report.html").exists()


def test_a_page_that_has_no_room_leaves_the_old_one_whole(tmp_path):
    run = written(tmp_path / "result.json", result())
    page = tmp_path / "page.html"
    page.write_text("the old one")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        answer = ucb("report", run, "-o", page)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert answer.exit_code == 1
    assert answer.stderr == f"error: {page}: File too large\n"
    assert page.read_text() == "the old one"
    assert {path.name for path in tmp_path.iterdir()} == {"result.json", "page.html"}


def test_a_page_that_cannot_be_written_does_not_fail_the_run(tmp_path):
    written(tmp_path / "run" / "result.json", result())
    (tmp_path / "run" / "report.html").mkdir()
    with console.capture() as said:
        leave_report(tmp_path / "run", [tmp_path / "run"])
    assert "there is no page with charts" in said.get()
