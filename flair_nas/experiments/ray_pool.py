"""Jobs on a Ray cluster. Ray is an extra; it is imported when a pool is made."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from flair_nas.errors import FlairNasError
from flair_nas.experiments.jobs import TRIES, Job, Outcome, Pool, ProcessDiedError


class RayPool(Pool):
    """Processes of a Ray cluster. If one dies, Ray begins its job again in another.

    All machines must have flair-nas installed and see the run folder under the same path.

    Args:
        workers: maximum number of jobs at a time; None for one on each processor of the cluster, or each GPU.
        address: address of a cluster, such as ``auto``; None starts one on this machine that ends with the pool.
        gpu: give each job a GPU, if the cluster has any.

    Raises:
        FlairNasError: Ray is not installed, or there is no cluster at that address.
    """

    def __init__(self, workers: int | None, *, address: str | None = None, gpu: bool = False) -> None:
        try:
            import ray
        except ImportError:
            raise FlairNasError(
                "engine ray needs Ray, which is not installed: pip install 'flair-nas[ray]', or leave --engine out"
            ) from None
        self.ray, self.owned = ray, not ray.is_initialized()
        if self.owned:
            options: dict[str, Any] = {"include_dashboard": False, "num_cpus": workers} if address is None else {}
            try:
                ray.init(address=address, log_to_driver=False, logging_level="ERROR", **options)
            except (ConnectionError, RuntimeError, ValueError) as error:
                raise FlairNasError(f"there is no Ray cluster at {address}: {str(error).splitlines()[0]}") from None
        resources = ray.cluster_resources()
        self.gpus = 1 if gpu and resources.get("GPU") else 0
        super().__init__(workers or max(1, int(resources["GPU" if self.gpus else "CPU"])))

    def close(self) -> None:
        """End all jobs at work, and a cluster that was started here."""
        super().close()
        if self.owned:
            self.ray.shutdown()

    def _start(self, job: Job) -> Future[Any]:
        work = self.ray.remote(num_cpus=1, num_gpus=self.gpus, max_retries=TRIES - 1)(_work)
        reference = work.options(name=job.name).remote(job.work, job.arguments)
        future: Future[Any] = reference.future()
        self.at_work[future] = reference
        return future

    def _finish(self, job: Job, future: Future[Any]) -> Outcome:
        del self.at_work[future]
        error = future.exception()
        if isinstance(error, self.ray.exceptions.RayTaskError):  # the job raised it
            error = error.cause if isinstance(error.cause, BaseException) else error
        elif isinstance(error, self.ray.exceptions.RayError):  # its process or machine failed
            error = ProcessDiedError(f"its process has died {TRIES} times ({type(error).__name__})")
        return Outcome(job, None if error else future.result(), error)

    def _kill(self, handle: Any) -> None:
        self.ray.cancel(handle, force=True)


def _work(work: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    logging.disable(logging.WARNING)  # the main process has logged the rest
    return work(*arguments)
