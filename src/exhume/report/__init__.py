"""Reports: an audit for people, as figures and as one page that opens offline."""

from exhume.report.figures import save_figures
from exhume.report.html import report

__all__ = ["report", "save_figures"]
