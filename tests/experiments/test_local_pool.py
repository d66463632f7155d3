"""Jobs in several processes: all are done, one that dies is begun again, and none is left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch
from own_process import ROOT, content, until_ended
from pool_jobs import die_until, double, fail, meet, take, threads, visible, wait_for, wait_for_ever

from flair_nas.errors import FlairNasError
from flair_nas.experiments.jobs import Job, Outcome, ProcessDiedError
from flair_nas.experiments.local_pool import LocalPool
from flair_nas.experiments.memory import Kind, Memory
from flair_nas.experiments.pool import make_pool
from flair_nas.tune.config import TuneConfig

pytestmark = pytest.mark.slow


def done(jobs: list[Job], workers: int, **options: int) -> list[Outcome]:
    with LocalPool(workers, **options) as pool:
        return list(pool.run(jobs))


SCRIPT = """
from flair_nas.experiments.local_pool import Job, LocalPool, not_while_imported


def main():
    not_while_imported()
    with LocalPool(2) as pool:
        print(sorted(outcome.result for outcome in pool.run([Job(str(n), abs, (-n,)) for n in (1, 2, 3)])))
"""


@pytest.mark.parametrize(
    ("call", "code", "out", "error"),
    [
        ("if __name__ == '__main__':\n    main()", 0, "[1, 2, 3]\n", ""),
        ("main()", 1, "", 'FlairNasError: this script starts processes, and each of them imports it; put its code '
         'under the line if __name__ == "__main__":\n'),
    ],
)  # fmt: skip
def test_a_script_that_each_process_would_begin_anew_is_told(
    tmp_path: Path, call: str, code: int, out: str, error: str
) -> None:
    (script := tmp_path / "script.py").write_text(f"{SCRIPT}\n\n{call}\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (code, out)
    assert ended.stderr.endswith(error) and ended.stderr.count("Traceback") == code


def test_all_jobs_are_done_and_a_process_does_several() -> None:
    jobs = [Job(f"job {number}", double, (number,)) for number in range(5)]
    jobs.insert(2, Job("bad", fail, ("no such thing",)))
    outcomes = {outcome.job.name: outcome for outcome in done(jobs, workers=1)}
    assert list(outcomes) == [job.name for job in jobs]
    bad = outcomes.pop("bad")
    assert isinstance(bad.error, ValueError) and str(bad.error) == "no such thing" and bad.result is None
    assert [outcome.result[0] for outcome in outcomes.values()] == [0, 2, 4, 6, 8]
    (process,) = {outcome.result[1] for outcome in outcomes.values()}
    assert process != os.getpid() and not psutil.pid_exists(process)


def test_jobs_that_others_bring_are_taken_while_a_process_is_free() -> None:
    """No job now is not the end: while one is at work, its result may bring another."""
    ended: list[int] = []

    def jobs() -> Iterator[Job | None]:
        for number in range(3):
            while len(ended) < number:  # each needs the one before
                yield None
            yield Job(f"job {number}", double, (number,))

    with LocalPool(2) as pool:
        for outcome in pool.run(jobs()):
            ended.append(outcome.result[0])
        assert ended == [0, 2, 4]
        assert list(pool.run([None, Job("late", double, (1,))])) == []  # nothing is at work that could bring one
        assert list(pool.run([])) == []


def test_a_job_is_asked_for_only_when_a_process_is_free() -> None:
    taken: list[int] = []

    def jobs() -> Iterator[Job]:
        for number in range(5):
            taken.append(number)
            yield Job(f"job {number}", double, (number,))

    with LocalPool(2) as pool:
        for ended, _ in enumerate(pool.run(jobs()), start=1):
            assert len(taken) <= ended + 1


def test_a_job_whose_process_died_comes_before_the_next(tmp_path: Path) -> None:
    jobs = [Job("mortal", die_until, (str(tmp_path), 1)), *(Job(str(number), double, (number,)) for number in range(2))]
    assert [outcome.job.name for outcome in done(jobs, workers=1)] == ["mortal", "0", "1"]


def test_a_process_is_kept_for_the_next_jobs() -> None:
    with LocalPool(1) as pool:
        found = [outcome.result[1] for _ in range(2) for outcome in pool.run([Job("job", double, (1,))])]
    assert found[0] == found[1]


def test_processes_work_side_by_side_with_their_threads(tmp_path: Path, memory: Callable[[int], None]) -> None:
    memory(100_000)
    jobs = [Job(name, meet, (str(tmp_path), name, 1)) for name in ("a", "b")]
    assert all(outcome.result for outcome in done(jobs, workers=2))
    (outcome,) = done([Job("threads", threads, ())], workers=4, threads=3)
    assert outcome.result == (3, "3")


@pytest.mark.parametrize(
    ("workers", "said", "each"),
    [
        (None, None, 1),
        (2, None, 8),
        (3, None, 5),
        (99, None, 1),
        (2, "4", 4),
        (2, "4,2", 4),
        (2, "99", 8),
        (2, "many", 8),
        (2, "0", 8),
    ],
)
def test_processes_share_the_cores(
    workers: int | None, said: str | None, each: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(16)))
    monkeypatch.delenv("OMP_NUM_THREADS") if said is None else monkeypatch.setenv("OMP_NUM_THREADS", said)
    pool = make_pool(TuneConfig(workers=workers, device="cpu"))
    assert isinstance(pool, LocalPool) and (pool.workers, pool.threads) == (workers or 16, each)


@pytest.mark.parametrize(
    ("device", "workers", "there", "expected"),
    [
        (None, None, None, (2, ["0", "1"])),
        ("cuda", None, "4,7", (2, ["4", "7"])),
        ("cuda", 6, None, (6, ["0", "1"])),
        ("cuda:1", None, None, (1, [])),
        ("cuda:1", 3, None, (3, [])),
        ("cpu", None, None, (16, [])),
    ],
)
def test_each_gpu_has_one_process_unless_more_are_asked_for(
    device: str | None,
    workers: int | None,
    there: str | None,
    expected: tuple[int, list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(16)))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if there is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", there)
    pool = make_pool(TuneConfig(workers=workers, device=device))
    assert isinstance(pool, LocalPool) and (pool.workers, pool.gpus) == expected


def test_processes_are_spread_over_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: Callable[[int], None]
) -> None:
    memory(100_000)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    jobs = [Job(name, visible, (str(tmp_path), name, 2)) for name in ("a", "b", "c")]
    with LocalPool(3, gpus=["4", "7"]) as pool:
        assert sorted(outcome.result for outcome in pool.run(jobs)) in (["4", "4", "7"], ["4", "7", "7"])
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


def test_a_device_that_is_not_there_is_refused() -> None:
    with pytest.raises(FlairNasError, match="device cuda:99: this PyTorch sees"):
        make_pool(TuneConfig(device="cuda:99"))


def test_a_process_that_dies_is_tried_again_and_the_others_go_on(tmp_path: Path) -> None:
    jobs = [Job("mortal", die_until, (str(tmp_path), 1)), *(Job(str(n), double, (n,)) for n in range(3))]
    outcomes = {outcome.job.name: outcome for outcome in done(jobs, workers=2)}
    assert [outcomes[str(number)].result[0] for number in range(3)] == [0, 2, 4]
    assert outcomes["mortal"].result == 1 and outcomes["mortal"].error is None


def test_a_process_that_is_killed_while_it_is_idle_is_replaced() -> None:
    with LocalPool(1) as pool:
        ((_, process),) = (outcome.result for outcome in pool.run([Job("before", double, (1,))]))
        os.kill(process, signal.SIGKILL)
        until_ended(process)
        (after,) = pool.run([Job("after", double, (2,))])
    assert after.error is None and after.result[0] == 4 and after.result[1] != process


def test_a_process_that_cannot_begin_has_died() -> None:
    (outcome,) = done([Job("job", double, (1,))], workers=1, threads=0)  # PyTorch refuses that
    assert isinstance(outcome.error, ProcessDiedError) and "died 2 times" in str(outcome.error)


def test_a_call_that_is_closed_ends_its_jobs_and_the_next_one_has_its_own(tmp_path: Path) -> None:
    waiting = tmp_path / "pid"
    with LocalPool(2) as pool:
        outcomes = pool.run([Job("long", wait_for_ever, (str(waiting),)), Job("short", wait_for, (str(waiting),))])
        assert next(outcomes).job.name == "short"
        outcomes.close()
        assert not psutil.pid_exists(int(content(waiting)))
        found = {outcome.job.name: outcome.result[0] for outcome in pool.run([Job("new", double, (4,))])}
    assert found == {"new": 8}


def test_a_process_is_not_tried_for_ever(tmp_path: Path) -> None:
    (outcome,) = done([Job("mortal", die_until, (str(tmp_path), 9))], workers=1)
    assert isinstance(outcome.error, ProcessDiedError) and "died 2 times" in str(outcome.error)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Simulate a machine with some megabytes, of which the processes of tests take theirs."""

    def have(megabytes: int) -> None:
        def free() -> SimpleNamespace:
            taken = 0
            for process in psutil.Process().children():
                with contextlib.suppress(psutil.Error):
                    taken += process.memory_info().rss
            return SimpleNamespace(available=megabytes * 10**6 - taken)

        monkeypatch.setattr(psutil, "virtual_memory", free)

    return have


def test_a_job_that_is_young_keeps_the_memory_that_it_will_take(tmp_path: Path, memory: Callable[[int], None]) -> None:
    memory(2000)  # two processes fit as long as they are small
    with LocalPool(2) as pool:
        for folder in (tmp_path / "unknown", tmp_path / "known"):
            folder.mkdir()
            outcomes = list(pool.run([Job(name, take, (str(folder), name)) for name in ("a", "b")]))
            assert [outcome.result for outcome in outcomes] == [False, False]


def test_a_job_counts_with_the_most_that_one_of_its_kind_has_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    now, free = [0.0], [0.0]  # seconds, GB
    for name in ("_size", "read_peak"):
        monkeypatch.setattr(f"flair_nas.experiments.memory.{name}", lambda process: 800_000_000 * process)
    monkeypatch.setattr("flair_nas.experiments.memory.time.monotonic", lambda: now[0])
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=free[0] * 1e9))
    own, other = (take, "data"), (take, "other data")

    def needed(memory: Memory, kind: Kind, at_work: list[tuple[Kind, int]]) -> float:
        """Return the GB with which another job of a kind can begin."""
        free[0] = 0.0
        while not memory.has_room(kind, None, at_work):
            free[0] += 0.01
        return free[0]

    memory = Memory()
    assert needed(memory, own, [(own, 1)]) == pytest.approx(4 - 0.8 + 1.2 * 4, abs=0.02)
    now[0] = 31.0  # it has not grown
    assert needed(memory, own, [(own, 1)]) == pytest.approx(1.2 * 0.8, abs=0.02)
    assert needed(memory, other, [(own, 1)]) == pytest.approx(1.2 * 4, abs=0.02)
    memory = Memory()
    memory.ended(own, 1)
    assert needed(memory, own, []) == pytest.approx(1.2 * 0.8, abs=0.02)


def test_a_stop_in_between_ends_all_processes(tmp_path: Path) -> None:
    waiting = tmp_path / "pid"
    with LocalPool(2) as pool:
        outcomes = pool.run([Job("long", wait_for_ever, (str(waiting),)), Job("short", double, (1,))])
        next(outcomes)
        process = int(content(waiting))
    assert not psutil.pid_exists(process)


def test_processes_end_with_the_one_that_began_them(tmp_path: Path) -> None:
    script = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parents[1] / "helpers")!r})
from pool_jobs import wait_for_ever
from flair_nas.experiments.local_pool import Job, LocalPool
if __name__ == "__main__":
    with LocalPool(1) as pool:
        list(pool.run([Job("long", wait_for_ever, ({str(tmp_path / "pid")!r},))]))
"""
    with subprocess.Popen(_command(tmp_path, script)) as parent:
        process = int(content(tmp_path / "pid"))
        parent.send_signal(signal.SIGKILL)
    until_ended(process)


def test_a_process_that_is_ended_leaves_no_semaphore_to_complain_about(tmp_path: Path) -> None:
    script = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parents[1] / "helpers")!r})
from pool_jobs import draw_for_ever, wait_for
file = {str(tmp_path / "pid")!r}
from flair_nas.experiments.local_pool import Job, LocalPool
if __name__ == "__main__":
    with LocalPool(2) as pool:
        next(pool.run([Job("long", draw_for_ever, (file,)), Job("short", wait_for, (file,))]))
"""
    done = subprocess.run(_command(tmp_path, script), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stderr == ""


def _command(folder: Path, script: str) -> list[str]:
    (folder / "script.py").write_text(script)
    return [sys.executable, str(folder / "script.py")]
