"""Comparisons and reports that the tests of the report share, and a parser that checks them."""

import dataclasses
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from gfgn.report import write_report
from gfgn.runs import Comparison

VOID = {"meta", "link", "br", "input"}
CONTROLS = {"input", "select", "button"}


class Page(HTMLParser):
    """The elements of a page, and what is wrong with them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
        self.wrong: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.headings: list[int] = []
        self.contents: list[list[str]] = []  # text of every element, in the order of `elements`
        self._open: list[tuple[str, int]] = []
        self.feed(text)
        self.close()
        self._check()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.contents.append([])
        if len(dict(attrs)) < len(attrs):
            self.wrong.append(f"<{tag}> has an attribute twice")
        if tag in ("td", "th") and not any(each == "tr" for each, _ in self._open):
            self.wrong.append(f"<{tag}> outside of a row")
        if tag not in VOID:
            self._open.append((tag, len(self.elements) - 1))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID or not self._open or self._open.pop()[0] != tag:
            self.wrong.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        for _, index in self._open:
            self.contents[index].append(data)

    def content(self, index: int) -> str:
        return "".join(self.contents[index]).strip()

    def _check(self) -> None:
        self.wrong += [f"<{tag}> is not closed" for tag, _ in self._open]
        ids = [attributes["id"] for _, attributes in self.elements if "id" in attributes]
        self.wrong += [f"id {each} twice" for each in ids if ids.count(each) > 1]
        level, labels = 0, {a["for"] for tag, a in self.elements if tag == "label"}
        for index, (tag, attributes) in enumerate(self.elements):
            if len(tag) == 2 and tag[0] == "h" and tag[1].isdigit():
                if int(tag[1]) > level + 1:
                    self.wrong.append(f"<{tag}> after h{level}")
                level = int(tag[1])
            if tag == "th" and attributes.get("scope") not in ("row", "col", "rowgroup"):
                self.wrong.append(f"<th> without scope: {self.content(index)}")
            if tag == "button" and not self.content(index):
                self.wrong.append("a button without a text")
            if tag in ("input", "select") and attributes.get("id") not in labels:
                self.wrong.append(f"<{tag}> without a label")
            if tag == "svg" and not (
                "aria-label" in attributes or attributes.get("aria-hidden") or "line" in (attributes.get("class") or "")
            ):
                self.wrong.append("<svg> without an alternative text")
            if attributes.get("href", "#")[:1] != "#" or attributes.get("href", "#")[1:] not in ("", *ids):
                self.wrong.append(f"link to {attributes['href']}")
        if [tag for tag, _ in self.elements].count("h1") != 1:
            self.wrong.append("not one h1")
        if [tag for tag, _ in self.elements].count("table") != [tag for tag, _ in self.elements].count("caption"):
            self.wrong.append("a table without a caption")


def write(folder: Path, *comparisons: Comparison) -> str:
    """The text of the report of some comparisons."""
    return write_report(comparisons, folder / "deep" / "report.html").read_text(encoding="utf-8")


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
    confusion = [[0] * count for _ in range(count)]
    for k in range(count):
        confusion[k][k], confusion[k][(k + 1) % count] = 8, 2
    assert comparison.explanation is not None
    classes = comparison.explanation["classes"] | {
        "class_names": names,
        "confusion": confusion,
        "support": [10] * count,
        **dict.fromkeys(("precision", "recall", "f1"), [0.8] * count),
    }
    return with_explanation(comparison, classes=classes)
