"""The report in headless Chromium: phone width, dark mode, keyboard, search and order, without errors or requests."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from report.browser import Browser, needs_chrome
from report.pages import with_classes, with_features, with_record

from gfgn.data import dimensions
from gfgn.report import write_report
from gfgn.runs import Comparison, Store, compare, explain, read_comparisons

pytestmark = needs_chrome

SHOWN = "[...document.querySelectorAll('.explorer tbody th[scope=row]')].map(e => e.textContent)"
STATUS = "document.querySelector('.explorer [role=status]').textContent"
SEARCH = "var box = document.querySelector('input'); box.value = {}; box.dispatchEvent(new Event('input'))"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    data = dimensions(120, degree=8, splits=2)
    with Store(":memory:") as store:
        explain(store, data, compare(data, ["mlp", "gfgn-graph", "gfgn-pair"], splits=2, store=store, max_epochs=5))
        return read_comparisons(store)[0]


@pytest.fixture(scope="module")
def small(comparison: Comparison, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report([comparison], tmp_path_factory.mktemp("small") / "report.html")


@pytest.fixture(scope="module")
def several(comparison: Comparison, tmp_path_factory: pytest.TempPathFactory) -> Path:
    other = with_record(comparison, name="other")
    return write_report([comparison, other], tmp_path_factory.mktemp("several") / "report.html")


@pytest.fixture(scope="module")
def wide(comparison: Comparison, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """9,000 features, 50 classes, and names that are long or look like markup."""
    names = [f"word {k}" for k in range(8998)] + ["</script><script>boom()</script>", "a" * 300]
    changed = with_classes(with_features(comparison, names), [f"class with a long name, number {k}" for k in range(50)])
    return write_report([changed], tmp_path_factory.mktemp("wide") / "report.html")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["small", "several", "wide"])
def test_a_phone_needs_no_sideways_scrolling(
    name: str, scheme: str, browser: Browser, request: pytest.FixtureRequest
) -> None:
    browser.open(request.getfixturevalue(name), 390, scheme)
    assert browser.run("innerWidth") == 390
    assert browser.run("document.documentElement.scrollWidth") <= 390
    charts = "[...document.querySelectorAll('svg text')].map(e => e.getBoundingClientRect())"
    boxes = browser.run(f"{charts}.filter(box => box.width).map(box => [box.left, box.right])")
    assert len(boxes) > 20
    assert min(left for left, _ in boxes) >= 0
    assert max(right for _, right in boxes) <= 390
    sizes = "[...document.querySelectorAll('body *')].filter(e => e.textContent.trim() && !e.closest('script'))"
    assert browser.run(f"Math.min(...{sizes}.map(e => parseFloat(getComputedStyle(e).fontSize)))") >= 11
    chart_sizes = "[...document.querySelectorAll('svg text')].map(e => parseFloat(getComputedStyle(e).fontSize))"
    assert browser.run(f"Math.min(...{chart_sizes})") >= 12
    assert browser.problems == []


def test_dark_mode_changes_the_page(browser: Browser, small: Path) -> None:
    colors = {}
    for scheme in ("light", "dark"):
        browser.open(small, 390, scheme)
        style = "getComputedStyle(document.body)"
        mark = "getComputedStyle(document.querySelector('svg.chart circle')).fill"
        colors[scheme] = browser.run(f"[{style}.backgroundColor, {style}.color, {mark}]")
    assert all(light != dark for light, dark in zip(colors["light"], colors["dark"], strict=True))


def test_search_finds_features(browser: Browser, wide: Path) -> None:
    browser.open(wide)
    shown = browser.run(SHOWN)  # both ends of the order
    assert (len(shown), shown[0], *shown[20:22]) == (40, "word 0", "a" * 300, "</script><script>boom()</script>")
    assert browser.run(STATUS) == "40 of 9000 features"
    browser.run(SEARCH.format("'WORD 12'"))
    expected = [name for name in (f"word {k}" for k in range(8998)) if "word 12" in name]
    assert browser.run(SHOWN) == expected
    assert browser.run(STATUS) == f"1–{len(expected)} of {len(expected)} features found"
    browser.run(SEARCH.format("'<script>'"))
    assert browser.run(SHOWN) == ["</script><script>boom()</script>"]
    browser.run(SEARCH.format("'no such word'"))
    assert browser.run(SHOWN) == []
    assert browser.run(STATUS) == "0 features found"
    browser.run(SEARCH.format("''"))
    assert len(browser.run(SHOWN)) == 40
    assert browser.problems == []


def test_pages_and_order(browser: Browser, wide: Path) -> None:
    browser.open(wide)
    browser.run("const heads = document.querySelectorAll('.explorer thead button'); heads[2].click()")
    shown = browser.run(SHOWN)
    assert len(shown) == 200
    assert shown[:2] == ["a" * 300, "</script><script>boom()</script>"]  # the largest smoothness
    assert browser.run("document.querySelector('[aria-sort]').getAttribute('aria-sort')") == "descending"
    assert browser.run(STATUS) == "1–200 of 9000 features"
    browser.run("[...document.querySelectorAll('button')].find(e => e.textContent === 'Next').click()")
    assert browser.run(STATUS) == "201–400 of 9000 features"
    browser.run("heads[2].click()")
    assert browser.run(SHOWN)[0] == "word 0"
    browser.run("heads[3].click()")  # importance: the features without one come last
    assert browser.run(SHOWN)[0] == "word 297"
    assert browser.run(SHOWN)[100:102] == ["word 1", "word 2"]
    browser.run("heads[0].click()")
    assert browser.run(SHOWN)[1:3] == ["a" * 300, "word 0"]


def test_the_keyboard_reaches_everything(browser: Browser, small: Path) -> None:
    browser.open(small)
    reached = []
    for _ in range(60):
        browser.press("Tab", 9)
        element = "document.activeElement"
        reached.append(browser.run(f"{element}.id || {element}.getAttribute('aria-label') || {element}.textContent"))
    assert reached[0] == "Skip to the content"
    regions = browser.run(
        "[...document.querySelectorAll('[role=region]')].filter(e => e.checkVisibility())"
        ".map(e => e.getAttribute('aria-label'))"
    )
    assert set(regions) <= set(reached)
    assert {"search-0", "show-0", "feature", "smoothness"} <= set(reached)
    browser.run("document.querySelector('.explorer thead button').focus()")
    browser.press("Enter", 13, "\r")
    assert browser.run("document.querySelector('.explorer th').getAttribute('aria-sort')") == "ascending"
    browser.run("document.querySelector('.wide').focus()")
    browser.press("ArrowRight", 39)
    frames = "let frames = 600; const wait = () => table.scrollLeft || !frames-- ? done(table.scrollLeft)"
    moved = f"const table = document.querySelector('.wide'); {frames} : requestAnimationFrame(wait); wait()"
    assert browser.run(f"new Promise((done) => {{ {moved} }})") > 0


def test_without_a_script_the_page_shows_both_ends(browser: Browser, wide: Path) -> None:
    browser.open(wide, script=False)
    root = browser.send("DOM.getDocument", depth=1)["root"]["nodeId"]

    def count(selector: str) -> int:
        return len(browser.send("DOM.querySelectorAll", nodeId=root, selector=selector)["nodeIds"])

    assert count(".controls[hidden]") == 2
    assert count(".explorer tbody th[scope=row]") == 40
