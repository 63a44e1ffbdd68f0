"""Files of the analyses, and titles."""

from pathlib import Path

from gfgn.paper.outputs import markdown_table, read_csv, write_csv, write_text
from gfgn.paper.titles import title_of


def test_csv_round_trip(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "deep" / "table.csv", ["name", "value"], [("a,b", 0.123456789), ("c", 12)], digits=3)
    assert path.read_text(encoding="utf-8") == 'name,value\n"a,b",0.123\nc,12\n'
    assert read_csv(path) == [{"name": "a,b", "value": "0.123"}, {"name": "c", "value": "12"}]
    assert read_csv(tmp_path / "none.csv") == []


def test_text_ends_with_one_line_break(tmp_path: Path) -> None:
    assert write_text(tmp_path / "a.md", "x\n\n").read_bytes() == b"x\n"


def test_markdown() -> None:
    table = markdown_table(["name", "value", "text"], [("a|b", "1,234", "yes"), ("c", "−5%", "1 to 2")])
    assert table.splitlines() == [
        "| name | value | text |",
        "| :-- | --: | :-- |",
        "| a\\|b | 1,234 | yes |",
        "| c | −5% | 1 to 2 |",
    ]
    assert markdown_table(["a"], []).splitlines() == ["| a |", "| :-- |"]


def test_titles() -> None:
    assert title_of("blogcatalog") == "BlogCatalog"
    assert title_of("ppi (stand-in)") == "PPI (stand-in)"
    assert title_of("unknown") == "unknown"
