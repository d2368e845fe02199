"""Write a sweep as one self-contained page that is safe to open, whatever settings and messages contain."""

from collections.abc import Sequence

from exhume.report.pages import load_template
from exhume.sweeps.jobs import TaskRecord
from exhume.sweeps.sweep_file import Sweep
from exhume.sweeps.table import Group, Table, cell, choose_results, group_by_settings

RESULTS_MOST = 12
"""Largest number of result columns on the page; the table has all of them."""
ROWS_MOST = 2000
"""Largest number of rows on the page."""


def render_page(
    sweep: Sweep, records: Sequence[TaskRecord], table: Table, *, tasks: int, title: str = "sweep", command: str = ""
) -> str:
    """Return the HTML of the summary: varied settings, means over seeds, failures, and every task."""
    shown = choose_results(table, RESULTS_MOST)
    varying = tuple(axis for axis in sweep.axes if len({cell(row[axis]) for row in table.rows}) > 1)
    gathered = group_by_settings(table, varying, shown)
    return _TEMPLATE.render(
        title=title,
        command=command,
        commands=" → ".join(sweep.commands),
        tasks=tasks,
        done=sum(record.state == "done" for record in records),
        failed=[record for record in records if record.state == "failed"],
        seconds=sum(record.seconds for record in records),
        seeds=len(sweep.seeds),
        axes=varying,
        fixed={name: cell(table.rows[0][name]) for name in table.settings if name not in varying} if table.rows else {},
        shown=shown,
        left_out=len(table.results) - len(shown),
        groups=gathered[:ROWS_MOST],
        mean=_mean,
        rows=table.rows[:ROWS_MOST],
        rows_left_out=max(0, len(table.rows) - ROWS_MOST),
        cell=cell,
        figure=_figure,
    )


_TEMPLATE = load_template("exhume.sweeps", "summary.html")


def _mean(group: Group, name: str) -> str:
    if name not in group.means:
        return "–"
    spread = f" ± {_figure(group.spreads[name])}" if group.spreads.get(name) else ""
    return _figure(group.means[name]) + spread


def _figure(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else cell(value)
