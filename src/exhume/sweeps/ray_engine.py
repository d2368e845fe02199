"""Run tasks on Ray, which chooses machines, runs tasks in parallel and retries those whose machine died."""

import importlib
import importlib.util
import logging
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from exhume.core.errors import ExhumeError
from exhume.core.text import first_sentence
from exhume.sweeps.jobs import Job, TaskRecord, failed_record, run_job
from exhume.sweeps.sweep_file import Resources

PATIENCE_SECONDS = 5.0
"""Seconds that a cluster may take to accept a connection."""
PASSED_ON = ("EXHUME_DATA",)
"""Environment variables that are passed on to tasks on other machines."""


@dataclass(frozen=True, kw_only=True)
class RayEngine:
    """Runs tasks on a Ray cluster, or on a Ray instance that it starts on this machine.

    A task is run again after its machine or process died (``resources.retries``); it continues in its folder. When the
    driver dies, Ray ends the running tasks, and the next call continues them.
    """

    address: str | None = None
    """``HOST:PORT``, or ``auto`` for the cluster that this machine is part of; None starts Ray here."""
    resources: Resources = field(default_factory=Resources)
    log: Path = Path(os.devnull)
    """File for Ray's own messages, which would otherwise appear among the results on standard output."""
    report: Callable[[str], object] = field(default=lambda sentence: None)
    """Callback for the message that no machine of the cluster has the resources for a task yet."""

    def check(self) -> None:
        """Check that Ray is installed and that a cluster answers at the address.

        Raises:
            ExhumeError: with what to do about it.
        """
        if importlib.util.find_spec("ray") is None:
            raise ExhumeError("The engine ray is not installed; get it with pip install 'exhume[ray]'.")
        if self.address is not None:
            self._check_address(self.address)

    def run(self, jobs: Sequence[Job]) -> Iterator[TaskRecord]:
        """Yield the record of each job as it ends, in any order.

        Raises:
            ExhumeError: when Ray cannot join the cluster, or a task takes more than this machine has.
        """
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("a", encoding="utf-8") as log, redirect_stdout(log):
            self._join()
            try:
                self._check_resources()
                yield from self._collect(jobs)
            finally:
                _ray().shutdown()

    def _collect(self, jobs: Sequence[Job]) -> Iterator[TaskRecord]:
        ray, wanted = _ray(), self.resources
        task = ray.remote(run_job).options(
            name="exhume sweep",
            num_cpus=wanted.cpus,
            num_gpus=wanted.gpus,
            memory=self._memory,
            max_retries=wanted.retries,
        )
        under_way = {task.remote(job): job for job in jobs}
        while under_way:
            # Collect all that end within a second: with thousands of tasks, waiting for each one is slow.
            ended, _ = ray.wait(list(under_way), num_returns=len(under_way), timeout=1.0)
            for reference in ended:
                job = under_way.pop(reference)
                try:
                    record: TaskRecord = ray.get(reference)
                except ray.exceptions.RayError as error:
                    record = failed_record(job, f"Ray abandoned the task: {first_sentence(error)}.")
                yield record

    def _join(self) -> None:
        ray = _ray()
        environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        settings: dict[str, Any] = {
            "log_to_driver": False,
            "logging_level": logging.ERROR,
            "runtime_env": {"env_vars": environment},
        }
        if self.address is None:
            ray.init(address="local", include_dashboard=False, **settings)
            return
        try:
            ray.init(address=self.address, **settings)
        except Exception as error:  # the type that Ray raises for another server depends on its version
            raise ExhumeError(
                f"Ray cannot join the cluster at {self.address} ({first_sentence(error)}); if the cluster asks for a "
                "token, set RAY_AUTH_MODE=token, or use --address auto on one of its machines."
            ) from error

    def _check_address(self, address: str) -> None:
        """Check that a server listens; Ray itself would retry for minutes and then end the process."""
        if address == "auto":
            noted = _find_current_cluster()
            if noted is None:  # then Ray itself reports at once that it found none
                return
            address = noted
        host, separator, port = address.rpartition(":")
        if not separator or not host or "/" in host or not port.isdigit() or int(port) > 65535:
            raise ExhumeError(f"An address reads HOST:PORT, or auto on a machine of the cluster, not {address!r}.")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE_SECONDS).close()
        except OSError as error:
            raise ExhumeError(
                f"No Ray cluster answers at {address} ({first_sentence(error)}); start one with 'ray start --head', or "
                "omit --address."
            ) from error

    def _check_resources(self) -> None:
        """Refuse resources that this machine lacks, for which Ray would wait silently; a cluster may still grow."""
        wanted = {"CPU": self.resources.cpus, "GPU": self.resources.gpus, "memory": self._memory or 0}
        machines = [node["Resources"] for node in _ray().nodes() if node["Alive"]]
        if any(all(one.get(kind, 0.0) >= much for kind, much in wanted.items()) for one in machines):
            return
        room = f"{_amounts(wanted)} by [resources]"
        if self.address is None:
            raise ExhumeError(f"A task takes {room}, and Ray finds {_amounts(machines[0])} on this machine.")
        self.report(f"No machine of the cluster has room for a task, which takes {room}; waiting for one.")

    @property
    def _memory(self) -> int | None:
        return round(self.resources.memory_gb * 2**30) or None


def _amounts(of: Mapping[str, float]) -> str:
    memory = of.get("memory", 0.0) / 2**30
    return f"{of.get('CPU', 0.0):g} CPUs, {of.get('GPU', 0.0):g} GPUs and {memory:.3g} GB of memory"


def _find_current_cluster() -> str | None:
    """Return the address that ``auto`` stands for: the one Ray wrote when it started, even if that cluster has died."""
    folder = next((os.environ[name] for name in ("RAY_TMPDIR", "TMPDIR") if name in os.environ), "/tmp")
    note = Path(folder, "ray", "ray_current_cluster")
    address = os.environ.get("RAY_ADDRESS") or (note.read_text(encoding="utf-8").strip() if note.is_file() else "")
    return address if ":" in address and "/" not in address else None


def _ray() -> Any:
    """Import Ray when it is needed (it takes seconds), and without types, which differ between versions."""
    return importlib.import_module("ray")
