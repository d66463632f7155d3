"""Jobs on a Ray cluster end as in processes of one machine; skipped where Ray, an extra, is not installed."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from own_process import content, until_ended
from pool_jobs import die_until, double, fail, wait_for, wait_for_ever
from small_tagging import write_corpus

from flair_nas.errors import FlairNasError
from flair_nas.experiments.jobs import Job, ProcessDiedError
from flair_nas.experiments.pool import make_pool
from flair_nas.tune.config import TuneConfig
from flair_nas.tune.tuning import tune_tagger

ray = pytest.importorskip("ray", reason="Ray is not installed (pip install 'flair-nas[ray]')")


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Two workers, which import what tests can import."""
    environment = {
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1] / "helpers"), os.environ.get("PYTHONPATH", "")])
    }
    runtime = {"env_vars": {**environment, "FLAIR_NAS_KERNELS": "columns"}}
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env=runtime)
    yield
    ray.shutdown()


def test_jobs_end_as_in_processes(cluster: None, tmp_path: Path) -> None:
    (tmp_path / "once").mkdir()
    (tmp_path / "often").mkdir()
    jobs = [Job(f"job {number}", double, (number,)) for number in range(3)]
    jobs += [Job("bad", fail, ("no such thing",)), Job("once", die_until, (str(tmp_path / "once"), 1))]
    jobs += [Job("often", die_until, (str(tmp_path / "often"), 9))]
    with make_pool(TuneConfig(engine="ray")) as pool:
        assert pool.workers == 2
        found = {outcome.job.name: outcome for outcome in pool.run(jobs)}
        assert list(pool.run([])) == list(pool.run([None, *jobs])) == []
    assert [found[f"job {number}"].result[0] for number in range(3)] == [0, 2, 4]
    assert isinstance(found["bad"].error, ValueError) and str(found["bad"].error) == "no such thing"
    assert found["once"].result == 1 and found["once"].error is None
    assert isinstance(found["often"].error, ProcessDiedError) and len(list((tmp_path / "often").iterdir())) == 2
    assert ray.is_initialized()  # a cluster that somebody else has started stays


def test_a_call_that_is_closed_ends_its_jobs_and_the_next_one_has_its_own(cluster: None, tmp_path: Path) -> None:
    waiting = tmp_path / "pid"
    with make_pool(TuneConfig(engine="ray")) as pool:
        outcomes = pool.run([Job("long", wait_for_ever, (str(waiting),)), Job("short", wait_for, (str(waiting),))])
        assert next(outcomes).job.name == "short"
        outcomes.close()
        until_ended(int(content(waiting)))
        found = {outcome.job.name: outcome.result[0] for outcome in pool.run([Job("new", double, (4,))])}
    assert found == {"new": 8}


def untimed(out: Path) -> dict[str, Any]:
    runs = json.loads((out / "ledger.json").read_text())["runs"]
    of_time = ("seconds", "memory_mb", "at", "ms", "ratio")
    return {name: {key: run[key] for key in run if not key.endswith(of_time)} for name, run in runs.items()}


def test_a_tuning_with_a_worker_that_is_killed_is_the_same(
    cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLAIR_NAS_KERNELS", "columns")
    given: dict[str, Any] = {
        "corpus": write_corpus(tmp_path / "corpus"), "embeddings": ["one-hot"], "vary": ["layer"], "hidden_size": 8,
        "batch_size": 8, "learning_rate": 1.0, "epochs": 8, "random": 1, "candidates": ["tanh0-tanh1"], "trials": 4,
        "sampler": "random", "seeds": [1, 2], "fresh_seeds": 2, "device": "cpu", "workers": 1,
    }  # fmt: skip
    tune_tagger(TuneConfig(**given), tmp_path / "processes")
    killed: list[int] = []

    def kill() -> None:
        while not killed:
            time.sleep(0.1)
            if not list((tmp_path / "ray").glob("runs/*/seed-*/checkpoint.pt")):
                continue
            for process in psutil.process_iter(["cmdline"]):
                if any(word.startswith("ray::") and "seed" in word for word in process.info["cmdline"] or []):
                    os.kill(process.pid, signal.SIGKILL)
                    killed.append(process.pid)
                    return

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    found = tune_tagger(TuneConfig(**given, engine="ray"), tmp_path / "ray")
    killer.join(1)
    assert killed and untimed(tmp_path / "ray") == untimed(tmp_path / "processes")
    first = (tmp_path / "processes" / "report.md").read_text().splitlines()[2]
    assert found.report.splitlines()[2] == first


def test_no_cluster_and_no_address_without_ray() -> None:
    with pytest.raises(FlairNasError, match="ray_address belongs to engine ray"):
        TuneConfig(ray_address="auto")
    if not ray.is_initialized():
        with pytest.raises(FlairNasError, match="there is no Ray cluster at auto"):
            make_pool(TuneConfig(engine="ray", ray_address="auto"))
