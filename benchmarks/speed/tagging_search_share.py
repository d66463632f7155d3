"""How much of a search on tags is spent outside its supernet: embeddings, CRF, Flair, optimizers.

    python -m benchmarks.speed.tagging_search_share --corpus wnut_17 --data-root DATASETS --embeddings EMBEDDING ... \
        [--hidden-size 64 256] [--steps 20] [--out FILE]

Steps of a search of first order (one of the architecture weights, one of the model's) are timed as they are; then the
supernet alone runs on what it was given in them, forward and backward, in the order in which it was. Each pair is taken
of the same batches, in one process.
"""

import argparse
import statistics
import time
from pathlib import Path

import torch
from torch.nn.utils.rnn import PackedSequence

from benchmarks.json_lines import lines_in, put
from flair_nas.search.bilevel import architecture_weights
from flair_nas.search.build import make_objective, make_strategy
from flair_nas.search.flair_config import TaggingSearchConfig
from flair_nas.search.processes import make_accelerator

RESULTS = Path(__file__).parents[1] / "results" / "tagging_search_share.jsonl"


def measure(config: TaggingSearchConfig, steps: int) -> tuple[float, float, float]:
    """Median seconds of a step and of its supernet alone, and the median share of a step that is outside it."""
    accelerator = make_accelerator("cpu", config.precision)
    objective = make_objective(config, accelerator)
    strategy = make_strategy(objective, config)
    objective.module.train()
    net, given = objective.supernet, list[PackedSequence]()
    hook = net.register_forward_pre_hook(lambda _, inputs: given.append(inputs[0]))
    architecture = architecture_weights(objective)
    of_it = {id(parameter) for parameter in architecture}
    weights = [parameter for parameter in net.parameters() if id(parameter) not in of_it]
    whole, alone = [], []
    for step in range(steps + 1):
        given.clear()
        started = time.perf_counter()
        strategy.step(1, step)
        whole.append(time.perf_counter() - started)
        inputs = [PackedSequence(item.data.detach().requires_grad_(), *item[1:]) for item in given]
        started = time.perf_counter()
        for item, wanted in zip(inputs, (architecture, weights), strict=True):  # first order: one pass for each
            torch.autograd.grad(net(item)[0].data.sum(), [item.data, *wanted])
        alone.append(time.perf_counter() - started)
    hook.remove()
    whole, alone = whole[1:], alone[1:]  # the first finds where everything is
    outside = statistics.median(1 - inside / step for step, inside in zip(whole, alone))
    return statistics.median(whole), statistics.median(alone), outside


def table() -> str:
    """The figures as a table."""
    rows = ["| corpus | H | s a step | of which the supernet | outside |", "| --- | --- | --- | --- | --- |"]
    for line in lines_in(RESULTS):
        cells = [line["corpus"], str(line["hidden_size"]), f"{line['step']:.3f}", f"{line['supernet']:.3f}"]
        rows.append(f"| {' | '.join([*cells, format(line['outside'], '.0%')])} |")
    return "\n".join(rows)


def main() -> None:
    """Measures each size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", default="demo")
    parser.add_argument("--data-root")
    parser.add_argument("--embeddings", nargs="+", default=["one-hot"])
    parser.add_argument("--hidden-size", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--out", type=Path, help="file to which JSON lines are added")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for size in arguments.hidden_size:
        given = {"corpus": arguments.corpus, "data_root": arguments.data_root, "embeddings": arguments.embeddings}
        step, alone, outside = measure(TaggingSearchConfig(**given, hidden_size=size, device="cpu"), arguments.steps)
        found = {"corpus": arguments.corpus, "hidden_size": size, "step": step, "supernet": alone, "outside": outside}
        put(found, arguments.out)


if __name__ == "__main__":
    main()
