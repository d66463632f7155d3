"""Jobs in several processes: all are done, one that dies is begun again, and none is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from select_jobs import die_until, double, fail, meet, threads, wait_for_ever

from flair_nas.select.workers import Died, Job, Outcome, Pool


def done(jobs: list[Job], workers: int, **options: int) -> list[Outcome]:
    with Pool(workers, **options) as pool:
        return list(pool.run(jobs))


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


def test_a_process_is_kept_for_the_next_jobs() -> None:
    with Pool(1) as pool:
        found = [outcome.result[1] for _ in range(2) for outcome in pool.run([Job("job", double, (1,))])]
    assert found[0] == found[1]


def test_processes_work_side_by_side_with_their_threads(tmp_path: Path) -> None:
    jobs = [Job(name, meet, (str(tmp_path), name, 1)) for name in ("a", "b")]
    assert all(outcome.result for outcome in done(jobs, workers=2))
    (outcome,) = done([Job("threads", threads, ())], workers=4, threads=3)
    assert outcome.result == (3, "3")


def test_a_process_that_dies_is_tried_again_and_the_others_go_on(tmp_path: Path) -> None:
    jobs = [Job("mortal", die_until, (str(tmp_path), 1)), *(Job(str(n), double, (n,)) for n in range(3))]
    outcomes = {outcome.job.name: outcome for outcome in done(jobs, workers=2)}
    assert [outcomes[str(number)].result[0] for number in range(3)] == [0, 2, 4]
    assert outcomes["mortal"].result == 1 and outcomes["mortal"].error is None


def test_a_process_is_not_tried_for_ever(tmp_path: Path) -> None:
    (outcome,) = done([Job("mortal", die_until, (str(tmp_path), 9))], workers=1, tries=1)
    assert isinstance(outcome.error, Died) and "died once" in str(outcome.error)


def test_no_memory_no_further_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flair_nas.select.workers._has_room", lambda slots: False)
    jobs = [Job(str(number), double, (number,)) for number in range(2)]
    assert len({outcome.result[1] for outcome in done(jobs, workers=2)}) == 1


def test_a_stop_in_between_ends_all_processes(tmp_path: Path) -> None:
    waiting = tmp_path / "pid"
    with Pool(2) as pool:
        next(pool.run([Job("long", wait_for_ever, (str(waiting),)), Job("short", double, (1,))]))
        process = int(_content(waiting))
    assert not psutil.pid_exists(process)


def test_processes_end_with_the_one_that_began_them(tmp_path: Path) -> None:
    script = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
from select_jobs import wait_for_ever
from flair_nas.select.workers import Job, Pool
if __name__ == "__main__":
    with Pool(1) as pool:
        list(pool.run([Job("long", wait_for_ever, ({str(tmp_path / "pid")!r},))]))
"""
    with subprocess.Popen(_command(tmp_path, script)) as parent:
        process = int(_content(tmp_path / "pid"))
        parent.send_signal(signal.SIGKILL)
    for _ in range(200):
        if not psutil.pid_exists(process) or psutil.Process(process).status() == psutil.STATUS_ZOMBIE:
            return
        time.sleep(0.05)
    pytest.fail("it outlived the process that began it")


def test_a_process_that_is_ended_leaves_no_semaphore_to_complain_about(tmp_path: Path) -> None:
    script = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
from select_jobs import draw_for_ever, wait_for
file = {str(tmp_path / "pid")!r}
from flair_nas.select.workers import Job, Pool
if __name__ == "__main__":
    with Pool(2) as pool:
        next(pool.run([Job("long", draw_for_ever, (file,)), Job("short", wait_for, (file,))]))
"""
    done = subprocess.run(_command(tmp_path, script), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stderr == ""


def _command(folder: Path, script: str) -> list[str]:
    (folder / "script.py").write_text(script)
    return [sys.executable, str(folder / "script.py")]


def _content(path: Path) -> str:
    for _ in range(1200):
        if path.exists() and path.read_text():
            return path.read_text()
        time.sleep(0.05)
    pytest.fail(f"{path} never came")
