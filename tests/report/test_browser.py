"""The page in a real browser: it renders, complains of nothing, asks nobody, and says as `inspect` and `verify` do."""

import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rmqstore.cli import main
from rmqstore.report import page_of
from tests.report.chromium import Chromium, Page
from tests.report.conftest import hostile_figures
from tests.report.stores import hostile_store, wide_store

pytestmark = pytest.mark.browser

EXAMPLE = Path(__file__).parents[2] / "examples" / "orders-store.tar.gz"
PHONE = {"width": 390, "height": 844}
# The cells of a column, by its head, of every row of a table: exact where there is data, else the text.
ROWS = """
(name => {
  const table = document.getElementById(`table-${name}`);
  if (!table) return [];
  const heads = [...table.tHead.rows[0].cells].map(cell => cell.textContent);
  return [...table.tBodies[0].rows].map(row => Object.fromEntries([...row.cells].map((cell, place) =>
    [heads[place], cell.dataset.v === undefined ? cell.textContent : cell.dataset.v === "" ? null : +cell.dataset.v])));
})
"""
# The share of pixels that are drawn upon, of each canvas.
DRAWN = """
[...document.querySelectorAll("canvas")].map(canvas => {
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  let drawn = 0;
  for (let place = 3; place < pixels.length; place += 4) drawn += pixels[place] > 0;
  return drawn / (pixels.length / 4);
})
"""
# The contrast of every text with what is behind it, the least first, by WCAG 2.
CONTRAST = """
(() => {
  const parse = text => (text.match(/[0-9.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, place) => sum + v * [.2126, .7152, .0722][place], 0);
  const behind = element => {
    for (let at = element; at; at = at.parentElement) {
      const color = parse(getComputedStyle(at).backgroundColor);
      if (color.length === 3 || color[3] > .99) return color;
    }
    return [255, 255, 255];
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.textContent.trim() || element.closest("script, noscript, style") || !element.checkVisibility()) continue;
    const [a, b] = [light(parse(getComputedStyle(element).color)), light(behind(element))].sort((x, y) => y - x);
    found.push([(a + .05) / (b + .05), node.textContent.slice(0, 40)]);
  }
  return found.sort((x, y) => x[0] - y[0]).slice(0, 3);
})()
"""


def said(*arguments: object) -> Any:
    return json.loads(CliRunner().invoke(main, [str(argument) for argument in arguments]).stdout)


def report_of(store: Path, output: Path) -> Path:
    done = CliRunner().invoke(main, ["report", str(store), "-o", str(output)])
    assert done.exit_code == 0, done.stderr
    return output


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of a real broker that the demo reads."""
    directory = tmp_path_factory.mktemp("example")
    with tarfile.open(EXAMPLE) as packed:
        packed.extractall(directory, filter="data")
    return directory / "store"


@pytest.fixture(scope="module")
def example_page(example: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report_of(example, tmp_path_factory.mktemp("page") / "report.html")


def is_at_peace(page: Page, path: Path) -> None:
    """The page complains of nothing, and has asked for nothing but itself."""
    page.settle()
    assert page.complaints() == []
    assert page.requests() == [path.resolve().as_uri()]


def shown_all(page: Page, table: str) -> list[dict[str, Any]]:
    """All rows of a table, those that are folded as well."""
    page.value(
        "document.querySelectorAll('.tools button').forEach(b => b.textContent.startsWith('Show all') && b.click())"
    )
    rows: list[dict[str, Any]] = page.value(f"{ROWS}('{table}')")
    return rows


@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [{}, PHONE], ids=["wide", "narrow"])
def test_it_renders_in_any_light_on_any_screen(
    size: dict[str, int], is_dark: bool, example_page: Path, browser: Chromium
) -> None:
    page = browser.open(example_page, is_dark=is_dark, **size)
    is_at_peace(page, example_page)
    drawn = page.value(DRAWN)
    assert len(drawn) == 3  # traffic, sizes, disk; what waits is due at one moment
    assert all(share > 0.01 for share in drawn)
    assert page.value("document.documentElement.scrollWidth <= innerWidth")
    assert page.value(CONTRAST)[0][0] >= 4.5
    red = page.value("+getComputedStyle(document.body).backgroundColor.match(/[0-9]+/)[0]")
    assert (red < 60) == is_dark


def test_its_numbers_are_those_of_inspect(example: Path, example_page: Path, browser: Chromium) -> None:
    (store,) = said("inspect", example, "--json")["stores"]
    page = browser.open(example_page)
    cards = page.value("Object.fromEntries([...document.querySelectorAll('.card b')].map(b => [b.id, +b.dataset.v]))")
    assert cards == {
        "figure-messages": sum(topic["messages"] for topic in store["topics"]),
        "figure-topics": len(store["topics"]),
        "figure-log-bytes": store["logEnd"] - store["logStart"],
        "figure-backlog": sum(group["backlog"] for group in store["groups"]),
        "figure-delayed": 4,
        "figure-pending": 0,
        "figure-damage": said("verify", example, "--json")["damageCount"],
    }
    topics = {row["Topic"]: row for row in shown_all(page, "topics")}
    assert topics.keys() == {topic["topic"] for topic in store["topics"]}
    for topic in store["topics"]:
        row, queues = topics[topic["topic"]], topic["queues"]
        assert (row["Messages"], row["Queues"]) == (topic["messages"], len(queues))
        assert row["Oldest (UTC)"] == min((queue["oldestMs"] for queue in queues), default=None)
        assert row["Newest (UTC)"] == max((queue["newestMs"] for queue in queues), default=None)
    groups = [(row["Group"], row["Topic"], row["Waiting"], row["Queues"]) for row in shown_all(page, "groups")]
    assert sorted(groups) == sorted(
        (group["group"], group["topic"], group["backlog"], len(group["queues"])) for group in store["groups"]
    )
    files = [(row["Commitlog file"], row["Size"]) for row in shown_all(page, "commitlog")]
    assert files == [(f["path"].removeprefix(f"{store['path']}/"), f["size"]) for f in store["logFiles"]]
    traffic = shown_all(page, "traffic")
    assert sum(sum(value for head, value in row.items() if head != "From (UTC)") for row in traffic) == 7511


def test_damage_is_that_of_verify(browser: Chromium, tmp_path: Path, store_of: Callable[[str], Path]) -> None:
    store = store_of("killed-lagcq-noabort")
    path = report_of(store, tmp_path / "damaged.html")
    page = browser.open(path)
    is_at_peace(page, path)
    verified = said("verify", store, "--json")
    assert page.value("+document.getElementById('figure-damage').dataset.v") == verified["damageCount"] > 0
    findings = verified["stores"][0]["findings"]
    assert [(row["Kind"], row["Byte"], row["What is wrong"]) for row in shown_all(page, "findings")] == [
        (found["severity"], found["position"], found["reason"]) for found in findings
    ]


def test_hostile_names_do_nothing(browser: Chromium, tmp_path: Path) -> None:
    path = report_of(hostile_store(tmp_path / "store"), tmp_path / "store.html")
    worse = tmp_path / "worse.html"
    worse.write_bytes(page_of(hostile_figures(tmp_path / "worse")))
    for each in (path, worse):
        page = browser.open(each)
        page.value("document.querySelectorAll('button, summary').forEach(one => one.click())")
        page.value("document.querySelectorAll('th').forEach(one => one.querySelector('button')?.click())")
        is_at_peace(page, each)
        assert page.value("window.harmed === undefined && document.getElementById('harm') === null")
        assert page.value("document.querySelectorAll('script, img, iframe, textarea, object, embed').length") == 2
        assert page.value("document.getElementById('table-groups').textContent.includes('<img id=harm src=x')")
        assert all(share > 0.01 for share in page.value(DRAWN))


def test_what_gets_into_a_page_all_the_same_does_not_run(browser: Chromium, example_page: Path, tmp_path: Path) -> None:
    """The policy stands behind the escaping."""
    harm = "<script>window.harmed=1</script><img src=x onerror=window.harmed=2><b style='color:red'>x</b></body>"
    path = tmp_path / "harmed.html"
    path.write_text(example_page.read_text(encoding="utf-8").replace("</body>", harm), encoding="utf-8")
    page = browser.open(path)
    page.settle()
    assert page.value("window.harmed === undefined")
    refused = json.dumps(page.complaints())
    assert "script-src" in refused
    assert "img-src" in refused


def test_a_thousand_topics_fit_and_are_found(browser: Chromium, tmp_path: Path) -> None:
    path = report_of(wide_store(tmp_path / "store", 1000), tmp_path / "wide.html")
    assert path.stat().st_size <= 3 * 1024 * 1024
    page = browser.open(path, **PHONE)
    is_at_peace(page, path)
    assert len(page.value(f"{ROWS}('topics')")) == 25
    page.value("""(() => {
      const search = document.querySelector("[name=search-table-topics]");
      search.value = "KIND-0777";
      search.dispatchEvent(new Event("input"));
    })()""")
    assert [row["Topic"] for row in page.value(f"{ROWS}('topics')")] == ["area-7-events-of-kind-0777"]
    page.value("""(() => {
      const search = document.querySelector("[name=search-table-topics]");
      search.value = "";
      search.dispatchEvent(new Event("input"));
    })()""")
    page.value("document.querySelectorAll('#table-topics thead button')[2].click()")  # bytes, the most first
    sizes = [row["Bytes"] for row in shown_all(page, "topics")]
    assert len(sizes) == 1000
    assert sizes == sorted(sizes, reverse=True)
    assert page.value("document.querySelector('#table-topics [aria-sort]').textContent") == "Bytes"
    is_at_peace(page, path)


def test_without_scripts_all_tables_are_there(browser: Chromium, example: Path, example_page: Path) -> None:
    page = browser.open(example_page, runs_scripts=False)
    assert page.complaints() == []
    (store,) = said("inspect", example, "--json")["stores"]
    root = page.call("DOM.getDocument", depth=0)["root"]["nodeId"]

    def count(selector: str) -> int:
        return len(page.call("DOM.querySelectorAll", nodeId=root, selector=selector)["nodeIds"])

    assert count("#table-topics tbody tr") == len(store["topics"])
    assert count("noscript p") == 1
    assert count("canvas, button, input") == 0


def test_it_prints_in_ink(browser: Chromium, example_page: Path) -> None:
    """Also for somebody who reads in the dark."""
    page = browser.open(example_page, is_dark=True)
    page.call("Emulation.setEmulatedMedia", media="print",
              features=[{"name": "prefers-color-scheme", "value": "dark"}])  # fmt: skip
    assert page.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.value("getComputedStyle(document.querySelector('.tools')).display") == "none"
    printed = page.call("Page.printToPDF", printBackground=False)["data"]
    assert len(printed) > 50_000
    is_at_peace(page, example_page)


def test_plots_follow_the_readers_choice(browser: Chromium, example_page: Path) -> None:
    """Messages or bytes, light or dark."""
    page = browser.open(example_page)
    first = page.value("document.querySelector('#plot-traffic canvas').toDataURL()")
    page.value("[...document.querySelectorAll('#plot-traffic button')][1].click()")
    assert page.value("document.querySelector('#plot-traffic [aria-pressed=true]').textContent") == "Bytes"
    second = page.value("document.querySelector('#plot-traffic canvas').toDataURL()")
    page.set_dark(True)
    page.settle()
    third = page.value("document.querySelector('#plot-traffic canvas').toDataURL()")
    assert len({first, second, third}) == 3
    is_at_peace(page, example_page)
