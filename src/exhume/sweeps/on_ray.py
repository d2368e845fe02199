"""Tasks on Ray: which machine, how many at once and what to do when one dies are its business."""

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
from exhume.sweeps.plan import Resources
from exhume.sweeps.work import Job, Record, carry_out, failure

PATIENCE_SECONDS = 5.0
"""How long a cluster may take to answer its door."""
PASSED_ON = ("EXHUME_DATA",)
"""Variables of the environment that tasks on other machines need."""


@dataclass(frozen=True, kw_only=True)
class RayEngine:
    """Runs tasks on a Ray cluster, or on a Ray of its own on this machine.

    Every task may be run again after its machine or process died (``resources.retries``); its folder and its commands
    make that harmless. When the driver dies, Ray ends the tasks that run, and the next call continues them.
    """

    address: str | None = None
    """``HOST:PORT``, or ``auto`` for the cluster that this machine is part of; None starts Ray here."""
    resources: Resources = field(default_factory=Resources)
    log: Path = Path(os.devnull)
    """Where Ray's own words go; it would tell of machines that died among the results on standard output."""
    tell: Callable[[str], object] = field(default=lambda sentence: None)
    """Hears that a cluster has no room for a task yet."""

    def check(self) -> None:
        """Refuse an engine that is not there, or an address that nobody answers at.

        Raises:
            ExhumeError: with what to do about it.
        """
        if importlib.util.find_spec("ray") is None:
            raise ExhumeError("The engine ray is not installed; get it with pip install 'exhume[ray]'.")
        if self.address is not None:
            self._knock(self.address)

    def run(self, jobs: Sequence[Job]) -> Iterator[Record]:
        """Yield the record of each job as it ends, in any order.

        Raises:
            ExhumeError: when Ray cannot join the cluster, or a task takes more than this machine has.
        """
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("a", encoding="utf-8") as log, redirect_stdout(log):
            self._join()
            try:
                self._look_for_room()
                yield from self._follow(jobs)
            finally:
                _ray().shutdown()

    def _follow(self, jobs: Sequence[Job]) -> Iterator[Record]:
        ray, wanted = _ray(), self.resources
        task = ray.remote(carry_out).options(
            name="exhume sweep",
            num_cpus=wanted.cpus,
            num_gpus=wanted.gpus,
            memory=self._memory,
            max_retries=wanted.retries,
        )
        under_way = {task.remote(job): job for job in jobs}
        while under_way:
            # As many as ended within a second: asking for one at a time takes long where there are thousands.
            ended, _ = ray.wait(list(under_way), num_returns=len(under_way), timeout=1.0)
            for reference in ended:
                job = under_way.pop(reference)
                try:
                    record: Record = ray.get(reference)
                except ray.exceptions.RayError as error:
                    record = failure(job, f"Ray gave the task up: {first_sentence(error)}.")
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
        except Exception as error:  # what Ray raises for a door that opens to something else differs by version
            raise ExhumeError(
                f"Ray cannot join the cluster at {self.address} ({first_sentence(error)}); if the cluster asks for a "
                "token, set RAY_AUTH_MODE=token, or use --address auto on one of its machines."
            ) from error

    def _knock(self, address: str) -> None:
        """Make sure that somebody listens: Ray itself tries for minutes and then ends the process."""
        if address == "auto":
            noted = _noted_cluster()
            if noted is None:  # then Ray says at once that it found none
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
                "leave --address out."
            ) from error

    def _look_for_room(self) -> None:
        """Refuse what this machine never has, and Ray would wait for in silence; a cluster may yet grow."""
        wanted = {"CPU": self.resources.cpus, "GPU": self.resources.gpus, "memory": self._memory or 0}
        machines = [node["Resources"] for node in _ray().nodes() if node["Alive"]]
        if any(all(one.get(kind, 0.0) >= much for kind, much in wanted.items()) for one in machines):
            return
        room = f"{_amounts(wanted)} by [resources]"
        if self.address is None:
            raise ExhumeError(f"A task takes {room}, and Ray finds {_amounts(machines[0])} on this machine.")
        self.tell(f"No machine of the cluster has room for a task, which takes {room}; waiting for one.")

    @property
    def _memory(self) -> int | None:
        return round(self.resources.memory_gb * 2**30) or None


def _amounts(of: Mapping[str, float]) -> str:
    memory = of.get("memory", 0.0) / 2**30
    return f"{of.get('CPU', 0.0):g} CPUs, {of.get('GPU', 0.0):g} GPUs and {memory:.3g} GB of memory"


def _noted_cluster() -> str | None:
    """Return the address that ``auto`` stands for: what Ray noted when it started, even if that cluster has died."""
    folder = next((os.environ[name] for name in ("RAY_TMPDIR", "TMPDIR") if name in os.environ), "/tmp")
    note = Path(folder, "ray", "ray_current_cluster")
    said = os.environ.get("RAY_ADDRESS") or (note.read_text(encoding="utf-8").strip() if note.is_file() else "")
    return said if ":" in said and "/" not in said else None


def _ray() -> Any:
    """Import Ray: late, as it takes a while and few need it, and untyped, as its own types differ between versions."""
    return importlib.import_module("ray")
