"""A sweep as one page: self-contained, offline, and safe to open whatever settings and messages say."""

from collections.abc import Sequence

from exhume.report.pages import page_template
from exhume.sweeps.plan import Sweep
from exhume.sweeps.table import Group, Table, cell, groups, telling
from exhume.sweeps.work import Record

RESULTS_MOST = 12
"""Columns of results on a page; the table has all."""
ROWS_MOST = 2000
"""Rows on a page, for the same reason."""


def page(
    sweep: Sweep, records: Sequence[Record], table: Table, *, tasks: int, title: str = "sweep", command: str = ""
) -> str:
    """Return the HTML of the summary: what varied, means over seeds, what failed, and every task."""
    shown = telling(table, RESULTS_MOST)
    varying = tuple(axis for axis in sweep.axes if len({cell(row[axis]) for row in table.rows}) > 1)
    gathered = groups(table, varying, shown)
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


_TEMPLATE = page_template("exhume.sweeps", "summary.html")


def _mean(group: Group, name: str) -> str:
    if name not in group.means:
        return "–"
    spread = f" ± {_figure(group.spreads[name])}" if group.spreads.get(name) else ""
    return _figure(group.means[name]) + spread


def _figure(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else cell(value)
