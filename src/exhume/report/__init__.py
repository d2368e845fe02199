"""Reports: an audit as figures and as one HTML page that opens offline."""

from exhume.report.figures import save_figures
from exhume.report.html import report

__all__ = ["report", "save_figures"]
