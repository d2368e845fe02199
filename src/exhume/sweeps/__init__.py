"""Sweeps: one command, or several in a row, over a grid of settings and seeds, on this machine or on many."""

from exhume.sweeps.conduct import Account, Engine, conduct
from exhume.sweeps.local import LocalEngine
from exhume.sweeps.on_ray import RayEngine
from exhume.sweeps.plan import Resources, Step, Sweep, Task, read_sweep
from exhume.sweeps.work import Job, Record, carry_out

__all__ = [
    "Account",
    "Engine",
    "Job",
    "LocalEngine",
    "RayEngine",
    "Record",
    "Resources",
    "Step",
    "Sweep",
    "Task",
    "carry_out",
    "conduct",
    "read_sweep",
]
