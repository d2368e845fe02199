"""Sweeps: one command, or several in a row, over a grid of settings and seeds, on this machine or on many."""

from exhume.sweeps.jobs import Job, TaskRecord, run_job
from exhume.sweeps.local_engine import LocalEngine
from exhume.sweeps.ray_engine import RayEngine
from exhume.sweeps.runner import Engine, SweepResult, run_sweep
from exhume.sweeps.sweep_file import Resources, Step, Sweep, Task, read_sweep

__all__ = [
    "Engine",
    "Job",
    "LocalEngine",
    "RayEngine",
    "Resources",
    "Step",
    "Sweep",
    "SweepResult",
    "Task",
    "TaskRecord",
    "read_sweep",
    "run_job",
    "run_sweep",
]
