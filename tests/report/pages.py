"""Comparisons and reports that the tests of the report share, and a parser that checks pages."""

import dataclasses
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from gfgn.report import write_report
from gfgn.runs import Comparison

VOID = {"meta", "link", "br", "input"}


class Page(HTMLParser):
    """The elements of a page, and what is wrong with them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
        self.wrong: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.contents: list[list[str]] = []  # text of every element, in the order of `elements`
        self.rows: list[list[str]] = []  # the cells of every row of a table
        self._open: list[tuple[str, int]] = []
        self.feed(text)
        self.close()
        self._check()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.contents.append([])
        if len(dict(attrs)) < len(attrs):
            self.wrong.append(f"<{tag}> has an attribute twice")
        if tag == "tr":
            self.rows.append([])
        if tag not in VOID:
            self._open.append((tag, len(self.elements) - 1))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        name, index = self._open.pop() if self._open and tag not in VOID else ("", 0)
        if name != tag:
            self.wrong.append(f"</{tag}>")
        if tag in ("td", "th"):
            self.rows[-1].append(self.content(index))

    def handle_data(self, data: str) -> None:
        for _, index in self._open:
            self.contents[index].append(data)

    def content(self, index: int) -> str:
        return "".join(self.contents[index]).strip()

    def row(self, name: str) -> list[str]:
        """The cells of the first row with that name."""
        return next(cells[1:] for cells in self.rows if cells[0] == name)

    def _check(self) -> None:
        self.wrong += [f"<{tag}> is not closed" for tag, _ in self._open]
        ids = [attributes["id"] for _, attributes in self.elements if "id" in attributes]
        self.wrong += [f"id {each} twice" for each in ids if ids.count(each) > 1]
        level, labels = 0, {a["for"] for tag, a in self.elements if tag == "label"}
        for index, (tag, attributes) in enumerate(self.elements):
            if tag in ("h1", "h2", "h3", "h4"):
                if int(tag[1]) > level + 1:
                    self.wrong.append(f"<{tag}> after h{level}")
                level = int(tag[1])
            if tag == "th" and attributes.get("scope") not in ("row", "col", "rowgroup"):
                self.wrong.append(f"<th> without scope: {self.content(index)}")
            if tag in ("input", "select") and attributes.get("id") not in labels:
                self.wrong.append(f"<{tag}> without a label")
            if tag == "svg" and not (
                "aria-label" in attributes or attributes.get("aria-hidden") or "line" in (attributes.get("class") or "")
            ):
                self.wrong.append("<svg> without an alternative text")
            if attributes.get("href", "#")[:1] != "#" or attributes.get("href", "#")[1:] not in ("", *ids):
                self.wrong.append(f"link to {attributes['href']}")
        tags = [tag for tag, _ in self.elements]
        if tags.count("h1") != 1 or tags.count("table") != tags.count("caption"):
            self.wrong.append("not one h1, or a table without a caption")


def write(folder: Path, *comparisons: Comparison) -> Page:
    """The report of some comparisons; it must be valid."""
    page = Page(write_report(comparisons, folder / "deep" / "report.html").read_text(encoding="utf-8"))
    assert page.wrong == []
    return page


def with_record(comparison: Comparison, **changes: Any) -> Comparison:
    """The comparison with another record of the dataset."""
    record = dataclasses.replace(comparison.dataset, **changes)
    return dataclasses.replace(comparison, records={comparison.study.datasets[0]: record})


def with_explanation(comparison: Comparison, **changes: Any) -> Comparison:
    """The comparison with some entries of its explanation replaced."""
    return dataclasses.replace(comparison, explanation=(comparison.explanation or {}) | changes)


def with_features(comparison: Comparison, names: list[str]) -> Comparison:
    """The comparison with as many features as names; their numbers follow from their order."""
    assert comparison.explanation is not None
    count = len(names)
    features = comparison.explanation["features"] | {
        "names": names,
        "gates": {"graph": [round(1 - k / count, 4) for k in range(count)]},
        "smoothness": [round(k / count, 4) for k in range(count)],
        "importance": [k / count / 10 if k % 3 == 0 and k < 300 else None for k in range(count)],
        "importance_std": [0.0] * count,
        "follows": None,
    }
    return with_explanation(comparison, features=features)


def with_classes(comparison: Comparison, names: list[str]) -> Comparison:
    """The comparison with as many classes as names, 10 test nodes each, 2 of which are taken for the next class."""
    count = len(names)
    confusion = [[8 * (i == j) + 2 * (j == (i + 1) % count) for j in range(count)] for i in range(count)]
    assert comparison.explanation is not None
    scores = dict.fromkeys(("precision", "recall", "f1"), [0.8] * count)
    classes = {"class_names": names, "confusion": confusion, "support": [10] * count} | scores
    return with_explanation(comparison, classes=comparison.explanation["classes"] | classes)
