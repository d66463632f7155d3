"""The architecture's gradient, first and second order, against autograd through the unrolled step (DARTS eq. 6-8)."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from reference_supernet import OPS, BatchNorm, run_sequence
from torch import Tensor, nn
from torch.func import functional_call

from flair_nas.search.bilevel import architecture_weights, first_order, second_order
from flair_nas.search.protocols import Batch
from flair_nas.supernet import CellSupernet

RATE = 0.7  # large, so that the correction is a good part of the gradient
DECAY = 0.2


class Model(nn.Module):
    """A mixture of smooth operations, relaxed by two architecture parameters; no parameter may go unnoticed."""

    def __init__(self, batch_norm: bool, unused: bool) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)

        def draw(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(*shape, generator=generator, dtype=torch.float64))

        self.enter, self.leave, self.bias = draw(3, 4), draw(4, 2), draw(2)
        self.mixture, self.balance = draw(4, 3), draw(1)
        self.norm = nn.BatchNorm1d(4, affine=False).double() if batch_norm else None
        self.unused_weight, self.unused_mixture = (draw(2), draw(2)) if unused else (None, None)

    def forward(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        x, y = batch
        z = x @ self.enter  # [B, 4]
        if self.norm is not None:
            z = self.norm(z)
        p = torch.softmax(self.mixture, dim=1)  # [4, 3], one softmax per feature
        hidden = p[:, 0] * torch.tanh(z) + p[:, 1] * torch.sigmoid(z) + p[:, 2] * z
        hidden = hidden + torch.sigmoid(self.balance) * torch.sin(hidden)
        return ((hidden @ self.leave + self.bias - y) ** 2).mean()


class Objective(nn.Module):
    """A model's losses, as the bilevel step wants them. With `fails_at`, that call of a loss raises instead."""

    penalty = None

    def __init__(self, batch_norm: bool = False, unused: bool = False) -> None:
        super().__init__()
        self.model = Model(batch_norm, unused)
        self.calls, self.fails_at = 0, 0

    def named(self, architecture: bool) -> dict[str, nn.Parameter]:
        parameters = self.model.named_parameters()
        return {n: p for n, p in parameters if (n in ("mixture", "balance", "unused_mixture")) == architecture}

    @property
    def module(self) -> nn.Module:
        return self.model

    @property
    def supernet(self) -> Any:
        return self

    def architecture(self) -> dict[str, list[nn.Parameter]]:
        return {"all": list(self.named(True).values())}

    def loss(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        self.calls += 1
        if self.calls == self.fails_at:
            raise RuntimeError("no loss today")
        return self.model(batch)

    def training_loss(self, batch: tuple[Tensor, Tensor], keep_state: bool = False) -> Tensor:
        return self.loss(batch) + 0.1 * self.model.enter.square().sum()  # the two losses may differ

    def validation_loss(self, batch: tuple[Tensor, Tensor], keep_state: bool = False) -> Tensor:
        return self.loss(batch)


def make_batches(parts: int = 1) -> tuple[Batch, Batch]:
    """A training and a validation batch, each in so many parts of one size."""
    generator = torch.Generator().manual_seed(2)
    draws = [torch.randn(6, width, generator=generator, dtype=torch.float64).chunk(parts) for width in (3, 2, 3, 2)]
    return Batch(list(zip(*draws[:2], strict=True))), Batch(list(zip(*draws[2:], strict=True)))


def flat(tensors: Any) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def clipped(gradients: list[Tensor], clip: float | None) -> tuple[list[Tensor], float]:
    """Return gradients of a norm of at most `clip`, and the factor that made them so."""
    factor = 1.0 if clip is None else min(1.0, clip / flat(gradients).norm().item())
    return [factor * gradient for gradient in gradients], factor


Losses = Callable[[dict[str, Tensor]], tuple[Tensor, Tensor]]


def losses_of(objective: Objective) -> Losses:
    """Return a function from all parameters to the training and the validation loss."""
    model, (training, validation) = copy.deepcopy(objective.model), [batch.parts[0] for batch in make_batches()]

    def losses(parameters: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        penalty = 0.1 * parameters["enter"].square().sum()
        return (
            functional_call(model, parameters, (training,)) + penalty,
            functional_call(model, parameters, (validation,)),
        )

    return losses


def grad(values: Any, of: dict[str, Tensor], outputs: Any = None) -> list[Tensor]:
    """Return gradients that can be differentiated again, zeros where there is no path."""
    leaves = list(of.values())
    return list(
        torch.autograd.grad(values, leaves, outputs, create_graph=True, allow_unused=True, materialize_grads=True)
    )


def unroll(
    losses: Losses, weights: dict[str, Any], alphas: dict[str, Any], rate: float, decay: float, clip: float | None
) -> tuple[float, list[Tensor], list[Tensor], list[float]]:
    """Differentiate the unrolled step w' = w - rate (c ∇_w L_train + decay w) by autograd, the factor c a constant.

    Return L_val(w', α), its direct gradient, the correction that autograd pulls back through w', and the factors by
    which the training gradient and the validation gradient were clipped.
    """
    gradients = grad(losses({**weights, **alphas})[0], weights)
    _, factor = clipped([gradient.detach() for gradient in gradients], clip)
    moved = {
        name: weight.detach() - rate * (factor * gradient + decay * weight.detach())
        for (name, weight), gradient in zip(weights.items(), gradients, strict=True)
    }
    loss = losses({**moved, **alphas})[1]
    vector, validation_factor = clipped([v.detach() for v in grad(loss, moved)], clip)
    stopped = {name: weight.detach() for name, weight in moved.items()}
    direct = grad(losses({**stopped, **alphas})[1], alphas)
    correction = grad(list(moved.values()), alphas, vector)
    results = ([tensor.detach() for tensor in tensors] for tensors in (direct, correction))
    return loss.item(), *results, [factor, validation_factor]


def unrolled(objective: Objective, decay: float, clip: float | None) -> Any:
    return unroll(losses_of(objective), objective.named(False), objective.named(True), RATE, decay, clip)


def assert_close(actual: Any, expected: Any, relative: float) -> None:
    error = (flat(actual) - flat(expected)).norm() / flat(expected).norm()
    assert error <= relative, f"off by {error:.1e} of the whole"


# clips: none; one that does nothing; the training gradient alone; both gradients
@pytest.mark.parametrize("batch_norm", [False, True], ids=["plain", "batch-norm"])
@pytest.mark.parametrize("decay", [0.0, DECAY])
@pytest.mark.parametrize("clip", [None, 1e3, 1.2, 0.25])
def test_second_order_equals_autograd_through_the_unrolled_step(
    clip: float | None, decay: float, batch_norm: bool
) -> None:
    objective = Objective(batch_norm)
    loss, direct, correction, factors = unrolled(objective, decay, clip)
    actual_loss, actual = second_order(objective, *make_batches(), learning_rate=RATE, weight_decay=decay, clip=clip)
    shapes = [parameter.shape for parameter in architecture_weights(objective)]
    assert [gradient.shape for gradient in actual] == shapes
    assert_close(actual, [d + c for d, c in zip(direct, correction, strict=True)], 0.01)
    # the finite difference is in the correction alone, so this is the sharper test
    assert_close([a - d for a, d in zip(actual, direct, strict=True)], correction, 0.01)
    assert flat(correction).norm() > 1e-3 * flat(direct).norm(), "a correction that is too small proves nothing"
    assert [factor < 1 for factor in factors] == {None: [False, False], 1e3: [False, False], 0.25: [True, True]}.get(
        clip, [True, factors[1] < 1]
    )
    assert actual_loss == pytest.approx(loss, rel=1e-5)


class SupernetObjective(nn.Module):
    """A regression through a supernet with gates, without relu, so that its losses are smooth."""

    penalty = None

    def __init__(self, relaxation: str) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.relaxation = relaxation
        self.net = CellSupernet(2, 3, nodes=2, relaxation=relaxation, history=2, init_range=0.7).double()
        with torch.no_grad():
            for parameter in architecture_weights(self):  # type: ignore[arg-type]
                parameter.copy_(torch.randn_like(parameter))
                parameter[:, OPS.index("relu")] = -1e4

    @property
    def module(self) -> nn.Module:
        return self.net

    @property
    def supernet(self) -> CellSupernet:
        return self.net

    def training_loss(self, batch: tuple[Tensor, Tensor], keep_state: bool = False) -> Tensor:
        xs, ys = batch
        return ((self.net(xs)[0] - ys) ** 2).mean()

    validation_loss = training_loss

    def losses(self, parameters: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """The same by the oracle, which can be differentiated twice."""

        def loss(batch: tuple[Tensor, Tensor]) -> Tensor:
            norm = BatchNorm(3, training=True)
            output, _ = run_sequence(parameters, self.relaxation, batch[0], history=2, norm=norm)
            return ((output - batch[1]) ** 2).mean()

        training, validation = self.batches()
        return loss(training), loss(validation)

    @staticmethod
    def batches() -> list[tuple[Tensor, Tensor]]:
        generator = torch.Generator().manual_seed(4)
        draws = [torch.randn(3, 5, width, generator=generator, dtype=torch.float64) for width in (2, 3, 2, 3)]
        return [(draws[0], draws[1]), (draws[2], draws[3])]


@pytest.mark.slow
@pytest.mark.parametrize("relaxation", ["darts", "i-darts"])
def test_second_order_through_a_supernet_equals_autograd_through_the_oracle(relaxation: str, kernels: str) -> None:
    objective = SupernetObjective(relaxation)
    own = dict(objective.net.named_parameters())
    weights = {name: p for name, p in own.items() if "arch" not in name}
    alphas = {name: p for name, p in own.items() if "arch" in name}
    loss, direct, correction, factors = unroll(objective.losses, weights, alphas, RATE, DECAY, 0.2)
    assert max(factors) < 1
    training, validation = objective.batches()
    before = {name: tensor.clone() for name, tensor in objective.state_dict().items()}
    actual_loss, actual = second_order(
        objective, Batch([training]), Batch([validation]), learning_rate=RATE, weight_decay=DECAY, clip=0.2
    )
    assert all(torch.equal(before[name], tensor) for name, tensor in objective.state_dict().items())
    assert actual_loss == pytest.approx(loss, rel=1e-5)
    assert_close(actual, [d + c for d, c in zip(direct, correction, strict=True)], 0.01)
    # batch norm over few sequences bends: at the design's ε the finite difference is off by 1.8 %, at a tenth by 0.02 %
    assert_close([a - d for a, d in zip(actual, direct, strict=True)], correction, 0.025)
    assert flat(correction).norm() > 1e-3 * flat(direct).norm(), "a correction that is too small proves nothing"


@pytest.mark.parametrize("batch_norm", [False, True], ids=["plain", "batch-norm"])
def test_first_order_is_the_gradient_of_the_validation_loss(batch_norm: bool) -> None:
    objective = Objective(batch_norm)
    (validation,) = make_batches()[1].parts
    loss = copy.deepcopy(objective).validation_loss(validation)
    other = copy.deepcopy(objective)
    expected = torch.autograd.grad(other.validation_loss(validation), architecture_weights(other))
    actual_loss, actual = first_order(objective, make_batches()[1])
    assert actual_loss == pytest.approx(loss.item(), rel=1e-6)  # a figure to show, perhaps in single precision
    assert_close(actual, expected, 1e-12)


@pytest.mark.parametrize("order", ["first", "second"])
def test_a_batch_in_parts_is_the_batch(order: str) -> None:
    """Gradient accumulation: the loss of a batch is the mean of those of its parts."""
    whole, parts = (run(order, Objective(), parts=parts) for parts in (1, 3))
    assert parts[0] == pytest.approx(whole[0], rel=1e-12)
    assert_close(parts[1], whole[1], 1e-9)


@pytest.mark.parametrize("order", ["first", "second"])
def test_a_part_of_the_architecture_can_learn_alone(order: str) -> None:
    everything = run(order, Objective())
    objective = Objective()
    loss, gradients = run(order, objective, architecture=architecture_weights(objective)[1:])
    assert loss == everything[0]
    assert_close(gradients, everything[1][1:], 1e-12)


def test_the_three_training_passes_draw_the_same_dropout_masks() -> None:
    """A difference of training losses under other masks would be noise; the validation loss has masks of its own."""
    drawn: dict[str, list[Tensor]] = {"training": [], "validation": []}

    class Dropping(Objective):
        def drop(self, part: str, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            drawn[part].append(torch.rand(6, 3, dtype=torch.float64))
            return batch[0] * (drawn[part][-1] > 0.5), batch[1]

        def training_loss(self, batch: tuple[Tensor, Tensor], keep_state: bool = False) -> Tensor:
            return super().training_loss(self.drop("training", batch))

        def validation_loss(self, batch: tuple[Tensor, Tensor], keep_state: bool = False) -> Tensor:
            return super().validation_loss(self.drop("validation", batch))

    masks = []  # of each step: that of training, that of validation
    for seed in (1, 1, None):  # the last step goes on from the one before it
        if seed is not None:
            torch.manual_seed(seed)
        run("second", Dropping())
        three, [validation] = drawn["training"], drawn["validation"]
        assert len(three) == 3
        assert all(torch.equal(mask, three[0]) for mask in three)
        masks.append((three[0], validation))
        drawn = {"training": [], "validation": []}
    masks.append((torch.rand(6, 3, dtype=torch.float64),))  # what the next step of the weights would draw
    assert all(torch.equal(one, again) for one, again in zip(*masks[:2], strict=True))
    different = [mask for step in masks[1:] for mask in step]
    assert not any(torch.equal(mask, other) for i, mask in enumerate(different) for other in different[:i])


@pytest.mark.parametrize("order", ["first", "second"])
def test_parameters_that_a_loss_does_not_use_are_no_trouble(order: str) -> None:
    gradients = []
    for unused in (True, False):
        objective = Objective(unused=unused)
        gradients.append(run(order, objective)[1])
        assert len(gradients[-1]) == len(architecture_weights(objective))
    assert torch.equal(gradients[0][-1], torch.zeros(2).double())
    # weight decay moves the unused weight, but not the gradient of anything
    assert_close(gradients[0][:-1], gradients[1], 1e-5)


def run(order: str, objective: Objective, parts: int = 1, **options: Any) -> tuple[float, list[Tensor]]:
    if order == "first":
        return first_order(objective, make_batches(parts)[1], **options)
    step = {"learning_rate": RATE, "weight_decay": DECAY, "clip": 0.25}
    return second_order(objective, *make_batches(parts), **step, **options)


def everything(objective: Objective) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in objective.state_dict().items()}


@pytest.mark.parametrize("order", ["first", "second"])
def test_weights_and_buffers_are_bit_for_bit_what_they_were(order: str) -> None:
    objective = Objective(batch_norm=True)
    before, parameters = everything(objective), list(objective.parameters())
    storages = [parameter.data_ptr() for parameter in parameters]
    run(order, objective)
    after = everything(objective)
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert before.keys() == after.keys()
    assert [parameter.data_ptr() for parameter in objective.parameters()] == storages
    assert all(parameter.requires_grad and parameter.grad is None for parameter in parameters)


@pytest.mark.parametrize("order", ["first", "second"])
def test_a_loss_that_fails_leaves_the_weights_as_they_were(order: str) -> None:
    whole = Objective(batch_norm=True)
    run(order, whole)
    assert whole.calls >= (1 if order == "first" else 4)
    for call in range(1, whole.calls + 1):
        objective = Objective(batch_norm=True)
        objective.fails_at = call
        before = everything(objective)
        with pytest.raises(RuntimeError, match="no loss today"):
            run(order, objective)
        after = everything(objective)
        assert all(torch.equal(before[name], after[name]) for name in before), f"loss number {call}"
