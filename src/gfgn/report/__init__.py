"""The report: figures and a self-contained HTML page."""

from gfgn.report.html import write_report

__all__ = ["write_report"]
