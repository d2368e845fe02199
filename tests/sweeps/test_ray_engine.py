"""Sweeps on a real Ray cluster of two workers: the same table as here, also when one of them is killed."""

import csv
import os
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from exhume.cli import main
from exhume.sweeps import RayEngine, Resources

pytest.importorskip("ray", reason="ray is not installed; pip install 'exhume[ray]'")
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own, about its coming versions

SWEEP = """
commands = ["train"]
seeds = 3
results = ["training.result.loss", "training.result.steps"]
[options.train]
data = "digits"
classes = "odd-even"
test = 0
[grid.train]
size = [4, 6]
width = [32, 64]
steps = [50, 60]
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sweep") / "sweep.toml"
    path.write_text(SWEEP)
    return path


@pytest.fixture(scope="module")
def expected(file: Path) -> list[dict[str, str]]:
    """The table of the local engine."""
    out = file.parent / "local"
    assert main(["sweep", str(file), f"--out={out}", "--quiet"]) == 0
    return table(out)


@pytest.fixture(scope="module")
def cluster() -> Iterator[object]:
    """A head that runs nothing, and two workers of one core each, on one machine but as separate as on two."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    # Ray waits half a minute for a machine that is silent; a test need not.
    quick = {"health_check_initial_delay_ms": 500, "health_check_period_ms": 500, "health_check_failure_threshold": 2}
    made = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, "_system_config": quick}
    )
    made.workers = [made.add_node(num_cpus=1) for _ in range(2)]
    yield made
    made.shutdown()


def table(out: Path) -> list[dict[str, str]]:
    with (out / "table.csv").open() as lines:
        return [{name: value for name, value in row.items() if name != "seconds"} for row in csv.DictReader(lines)]


def records(out: Path) -> int:
    return len(list(out.glob("tasks/*/task.json")))


def test_two_workers_end_with_the_same_table_though_one_is_killed(file, expected, cluster, tmp_path, capsys):
    out, seen = tmp_path / "out", {}

    def kill() -> None:
        deadline = time.monotonic() + 60
        while records(out) < 6 and time.monotonic() < deadline:
            time.sleep(0.02)
        seen["done"] = records(out)
        cluster.remove_node(cluster.workers[1], allow_graceful=False)

    killer = threading.Thread(target=kill)
    killer.start()
    status = main(["sweep", str(file), "--engine=ray", f"--address={cluster.address}", f"--out={out}", "--json"])
    killer.join()
    assert status == 0
    assert 6 <= seen["done"] < 24, "killed at work"
    assert len(expected) == 24
    assert table(out) == expected
    assert capsys.readouterr().out.startswith("{"), "what Ray says is not among the results"
    lines = ["sweep", str(file), "--engine=ray", f"--address={cluster.address}", f"--out={out}", "--quiet"]
    assert main(lines) == 0, "all is found, and nothing runs"


def test_a_ray_of_its_own_ends_with_the_same_table(file, expected, tmp_path):
    assert main(["sweep", str(file), "--engine=ray", f"--out={tmp_path}", "--quiet"]) == 0
    assert table(tmp_path) == expected


def test_what_this_machine_never_has_is_refused(tmp_path, capsys):
    (tmp_path / "greedy.toml").write_text(f"{SWEEP}[resources]\ngpus = 99\nmemory_gb = 9e6\n")
    assert main(["sweep", str(tmp_path / "greedy.toml"), "--engine=ray", f"--out={tmp_path / 'out'}", "--quiet"]) == 2
    assert "A task takes 1 CPUs, 99 GPUs and 9e+06 GB of memory by [resources]" in capsys.readouterr().err
    assert not (tmp_path / "out" / "table.csv").exists()


def test_a_cluster_without_room_is_waited_for_and_said_to_have_none(cluster):
    import ray

    heard = []
    engine = RayEngine(address=cluster.address, resources=Resources(memory_gb=9e6), tell=heard.append)
    engine._join()
    try:
        engine._check_resources()
        replace(engine, resources=Resources())._check_resources()
    finally:
        ray.shutdown()
    (said,) = heard
    assert "9e+06 GB of memory" in said


def test_a_cluster_that_died_is_refused_at_once(tmp_path, capsys, monkeypatch):
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{door.getsockname()[1]}"  # nobody listens there
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text(address)
    (tmp_path / "sweep.toml").write_text(SWEEP)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    for given in ("auto", address):
        command = ["sweep", str(tmp_path / "sweep.toml"), "--engine=ray", f"--address={given}", "--quiet"]
        assert main([*command, f"--out={tmp_path / 'out'}"]) == 2
        assert f"No Ray cluster answers at {address}" in capsys.readouterr().err
