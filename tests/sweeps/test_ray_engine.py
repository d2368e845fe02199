"""Sweeps on a real Ray cluster of two machines: the same table as on this machine, also when a worker is killed."""

import csv
import importlib.util
import json
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from exhume.cli import main
from exhume.core.errors import ExhumeError
from exhume.sweeps import RayEngine, Resources, run_sweep
from tests.sweeps.pretend_commands import job, rows, sweep

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None, reason="ray is not installed; pip install 'exhume[ray]'"
    ),
    pytest.mark.filterwarnings("ignore"),  # Ray warns about its coming versions
]

SWEEP = """
commands = ["train"]
results = ["training.result.loss", "training.result.steps"]
[options.train]
data = "digits"
classes = "odd-even"
test = 0
steps = 20
lr = 0.01
width = 32
[grid.train]
size = [4, 6]
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head and a worker with one core each: separate processes, as on two machines."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("RAY_USAGE_STATS_ENABLED", "0")
        from ray.cluster_utils import Cluster

        # Ray waits half a minute before it takes a silent machine for dead; tests need not wait.
        quick = {
            "health_check_initial_delay_ms": 500,
            "health_check_period_ms": 500,
            "health_check_failure_threshold": 2,
        }
        made = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False, "_system_config": quick}
        )
        made.worker = made.add_node(num_cpus=1)
        yield made
        made.shutdown()


def read_table(out: Path) -> list[dict[str, str]]:
    with (out / "table.csv").open() as lines:
        return [{name: value for name, value in row.items() if name != "seconds"} for row in csv.DictReader(lines)]


def test_a_cluster_gives_the_same_table_as_this_machine(cluster, tmp_path, capsys):
    file = tmp_path / "sweep.toml"
    file.write_text(SWEEP)
    assert main(["sweep", str(file), f"--out={tmp_path / 'local'}", "--quiet"]) == 0
    on_cluster = ["sweep", str(file), "--engine=ray", f"--address={cluster.address}", f"--out={tmp_path / 'ray'}"]
    assert main([*on_cluster, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["done"] == 2, "messages of Ray are not among the results"
    assert read_table(tmp_path / "ray") == read_table(tmp_path / "local")


def test_missing_resources_are_refused_here_and_waited_for_on_a_cluster(cluster):
    import ray

    messages = []
    engine = RayEngine(address=cluster.address, resources=Resources(memory_gb=9e6), report=messages.append)
    engine._join()
    try:
        engine._check_resources()
        replace(engine, resources=Resources())._check_resources()
        with pytest.raises(ExhumeError, match=r"A task takes 1 CPUs, 99 GPUs and 9e\+06 GB of memory by \[resources\]"):
            replace(engine, address=None, resources=Resources(gpus=99.0, memory_gb=9e6))._check_resources()
    finally:
        ray.shutdown()
    [message] = messages
    assert "9e+06 GB of memory" in message


def test_tasks_of_a_killed_worker_run_again_on_another(cluster, tmp_path):
    starts = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()

        def ask_to_finish(line):  # inside the test, so that it is sent to the workers, which lack this module
            with socket.create_connection(address) as connection:
                connection.sendall(b"?")
                connection.recv(1)
            Path(line[-1], "result.json").write_text(f'{{"number": {line[0]}}}')
            return 0

        def kill_and_let_finish() -> None:
            both = [server.accept()[0] for _ in range(2)]
            starts.extend(both)
            assert [connection.recv(1) for connection in both] == [b"?"] * 2
            cluster.remove_node(cluster.worker, allow_graceful=False)
            [dead], _, _ = select.select(both, [], [])  # the connection of the killed task ends
            both.remove(dead)
            both[0].sendall(b"!")
            with suppress(OSError):  # until the server is shut down
                while True:
                    starts.append(server.accept()[0])
                    starts[-1].sendall(b"!")

        judge = threading.Thread(target=kill_and_let_finish, daemon=True)
        judge.start()
        jobs = [replace(job(tmp_path, number, str(number)), run=ask_to_finish) for number in (1, 2, 3)]
        engine = RayEngine(address=cluster.address, log=tmp_path / "ray.log")
        result = run_sweep(sweep(), jobs, engine, tmp_path)
        server.shutdown(socket.SHUT_RDWR)
        judge.join()
    for connection in starts:
        connection.close()
    assert not result.failed
    assert [row["result.number"] for row in rows(result)] == ["1", "2", "3"]
    assert len(starts) > len(jobs), "a task was killed at work and started again"
    assert run_sweep(sweep(), jobs, engine, tmp_path).found == 3, "all are finished, and none runs"


def test_without_an_address_ray_starts_on_this_machine(tmp_path):
    def write_number(line):
        Path(line[-1], "result.json").write_text(f'{{"number": {line[0]}}}')
        return 0

    jobs = [replace(job(tmp_path, 1, "1"), run=write_number)]  # each further task starts a process of its own
    result = run_sweep(sweep(), jobs, RayEngine(log=tmp_path / "ray.log"), tmp_path)
    assert [row["result.number"] for row in rows(result)] == ["1"]


def test_a_cluster_that_died_is_refused(tmp_path, capsys, monkeypatch):
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{door.getsockname()[1]}"  # a free port
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text(address)
    (tmp_path / "sweep.toml").write_text(SWEEP)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    for given in ("auto", address):
        command = ["sweep", str(tmp_path / "sweep.toml"), "--engine=ray", f"--address={given}", "--quiet"]
        assert main([*command, f"--out={tmp_path / 'out'}"]) == 2
        assert f"No Ray cluster answers at {address}" in capsys.readouterr().err
