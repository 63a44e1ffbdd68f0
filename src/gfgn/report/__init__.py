"""Reports of comparisons: HTML page, terminal tables, progress and figures."""

from gfgn.report.html import write_report

__all__ = ["write_report"]
