"""Jobs on a Ray cluster, with the outcomes of `LocalPool`. Ray is an extra, and is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any

from flair_nas.errors import FlairNasError
from flair_nas.experiments.jobs import Died, Job, Outcome, always


class RayPool:
    """Processes of a Ray cluster that do jobs. One that dies is replaced by Ray, and its job begun again.

    All machines must have flair-nas installed and see the run folder under the same path.

    Args:
        workers: how many jobs at most at a time; None for as many as the cluster has processors (or GPUs).
        address: of a cluster, such as ``auto``; None starts one on this machine, for as long as the pool lasts.
        gpu: each job has a GPU, if the cluster has any.
        tries: how often a job is begun whose process dies.

    Raises:
        FlairNasError: Ray is not installed, or there is no cluster at that address.
    """

    def __init__(self, workers: int | None, *, address: str | None = None, gpu: bool = False, tries: int = 2) -> None:
        try:
            import ray
        except ImportError:
            raise FlairNasError(
                "engine ray needs Ray, which is not installed: pip install 'flair-nas[ray]', or leave --engine out"
            ) from None
        self.ray, self.tries = ray, tries
        self.owned = not ray.is_initialized()
        if self.owned:
            options: dict[str, Any] = {"include_dashboard": False, "num_cpus": workers} if address is None else {}
            try:
                ray.init(address=address, log_to_driver=False, logging_level="ERROR", **options)
            except (ConnectionError, RuntimeError, ValueError) as error:
                raise FlairNasError(f"there is no Ray cluster at {address}: {str(error).splitlines()[0]}") from None
        there = ray.cluster_resources()
        self.gpus = 1 if gpu and there.get("GPU") else 0
        self.workers = workers or max(1, int(there["GPU" if self.gpus else "CPU"]))
        self.running: set[Any] = set()  # what the cluster is to do

    def __enter__(self) -> RayPool:
        return self

    def __exit__(self, *_: object) -> None:
        """Ends all jobs at work, and a cluster that was started here."""
        self._end(self.running)
        if self.owned:
            self.ray.shutdown()

    def run(self, jobs: Sequence[Job], may_begin: Callable[[Job], bool] = always) -> Generator[Outcome, None, None]:
        """Does all jobs, in their order as far as processes are free, and gives each when it has ended.

        Closed before the last one, it ends those of its jobs that are at work.

        Args:
            jobs: what is to be done.
            may_begin: asked before each; from the first that may not, none is begun.
        """
        work = self.ray.remote(num_cpus=1, num_gpus=self.gpus, max_retries=self.tries - 1)(_work)
        left = list(jobs)
        running: dict[Any, Job] = {}  # of this call alone
        try:
            while left or running:
                while left and len(running) < self.workers:
                    if not may_begin(left[0]):
                        left.clear()
                        break
                    job = left.pop(0)
                    reference = work.options(name=job.name).remote(job.work, job.arguments)
                    running[reference] = job
                    self.running.add(reference)
                if not running:
                    return
                (ended, *_), _ = self.ray.wait(list(running), num_returns=1)
                self.running.discard(ended)
                yield self._outcome(running.pop(ended), ended)
        finally:
            self._end(running)

    def _end(self, references: Iterable[Any]) -> None:
        for reference in [*references]:
            if reference in self.running:
                self.ray.cancel(reference, force=True)
                self.running.discard(reference)

    def _outcome(self, job: Job, reference: Any) -> Outcome:
        try:
            return Outcome(job, self.ray.get(reference), None)
        except self.ray.exceptions.RayTaskError as error:  # what the job raised
            return Outcome(job, None, error.cause if isinstance(error.cause, BaseException) else error)
        except self.ray.exceptions.RayError as error:  # its process or machine
            times = "once" if self.tries == 1 else f"{self.tries} times"
            return Outcome(job, None, Died(f"its process has died {times} ({type(error).__name__})"))


def _work(work: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    return work(*arguments)
