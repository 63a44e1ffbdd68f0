"""Reports of comparisons and trained models: HTML pages, terminal tables, progress and figures."""

from gfgn.report.comparisons import write_report

__all__ = ["write_report"]
