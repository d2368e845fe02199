"""Structure of modules: dense stacks are recognised, nothing else is, and the first trained layer is found."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations

from exhume.models.convnet import ConvNet
from exhume.models.dense import dense_features
from exhume.models.mlp import MLP
from exhume.models.structure import dense_stack, first_trained, read_chain


class ClassBased(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(12, 5)
        self.drop = nn.Dropout(0.5)
        self.second = nn.Linear(5, 4, bias=False)
        self.third = nn.Linear(4, 3)


class Flattening(ClassBased):
    def forward(self, x):
        x = functional.relu(self.first(torch.flatten(x, 1)))
        return self.third(functional.relu(self.second(self.drop(x))))


class Viewing(ClassBased):
    def forward(self, x):
        x = torch.relu(self.first(x.view(x.size(0), -1)))
        x = functional.dropout(x, training=self.training)
        return self.third(self.second(x).relu())


class Shaping(ClassBased):
    def forward(self, x):
        batch = x.shape[0]
        x = self.first(x.reshape(batch, 12)).relu_()
        return self.third(functional.relu(self.second(x), inplace=True))


class Leaking(ClassBased):
    def forward(self, x):
        x = functional.leaky_relu(self.first(x.flatten(1)), 0.3)
        return self.third(functional.leaky_relu(self.second(x), negative_slope=0.3))


class Residual(ClassBased):
    def forward(self, x):
        x = self.first(x.flatten(1)).relu()
        return self.third(self.second(x).relu()) + x.mean(1, keepdim=True)


class MethodResidual(ClassBased):
    def forward(self, x):
        x = self.first(x.flatten(1)).relu()
        y = functional.relu(self.second(x))
        return self.third(y).add(x[:, :3])


class Deciding(ClassBased):
    def forward(self, x):
        x = self.first(x.flatten(1)).relu()
        return self.third(self.second(x).relu()) if x.sum() > 0 else self.third(self.second(x))


class TwoInputs(ClassBased):
    def forward(self, x, y):
        return self.third(functional.relu(self.second(functional.relu(self.first(x)))))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(functional.relu(self.layer(x)))


def tied_by_assignment() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    model[2].weight = model[0].weight
    return model


STACKS = {
    "sequential": nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.ReLU(), nn.Dropout(), nn.Linear(5, 3)),
    "inplace": nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.ReLU(inplace=True), nn.Linear(5, 3)),
    "nested": nn.Sequential(nn.Flatten(), nn.Sequential(nn.Linear(12, 5), nn.Tanh()), nn.Linear(5, 3)),
    "settings": nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.Softplus(beta=3.0), nn.Linear(5, 3)),
    "flattening": Flattening(),
    "viewing": Viewing(),
    "shaping": Shaping(),
    "leaking": Leaking(),
    "mlp": MLP(width=6, depth=3).build((3, 2, 2), 2),
    "ntk": MLP(width=6, depth=3, parameterisation="ntk", activation="elu").build((3, 2, 2), 2),
    "deep linear": MLP(width=6, depth=2, activation="identity").build((3, 2, 2), 2),
    "one layer": nn.Sequential(nn.Flatten(), nn.Linear(12, 3)),
}

OTHERS = {
    "residual": Residual(),
    "method residual": MethodResidual(),
    "deciding": Deciding(),
    "two inputs": TwoInputs(),
    "convnet": ConvNet(channels=2).build((1, 8, 8), 2),
    "two activations": nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1)),
    "two slopes": nn.Sequential(
        nn.Linear(4, 4), nn.LeakyReLU(0.1), nn.Linear(4, 4), nn.LeakyReLU(0.2), nn.Linear(4, 1)
    ),
    "some without activation": nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.Linear(4, 1)),
    "activation last": nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1), nn.ReLU()),
    "softmax is not elementwise": nn.Sequential(nn.Linear(4, 4), nn.Softmax(1), nn.Linear(4, 1)),
    "activation with weights": nn.Sequential(nn.Linear(4, 4), nn.PReLU(), nn.Linear(4, 1)),
    "normalised": nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1)),
    "weight norm": nn.Sequential(parametrizations.weight_norm(nn.Linear(4, 4)), nn.ReLU(), nn.Linear(4, 1)),
    "tied": Tied(),
    "tied by assignment": tied_by_assignment(),
    "dense over the last axis": nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 1)),
    "lazy": nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(1)),
    "bare lazy": nn.LazyLinear(2),
    "empty": nn.Sequential(),
    "no layer": nn.Flatten(),
}


@pytest.mark.parametrize("name", STACKS)
def test_a_dense_stack_computes_what_the_module_does(name):
    model = STACKS[name].double().eval()
    stack = dense_stack(model)
    assert stack is not None
    weights = {key: value.detach() for key, value in model.state_dict().items()}
    inputs = torch.randn(4, 3, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    layer_inputs, signals = dense_features(stack, weights, inputs)
    last = stack.layers[-1]
    outputs = last.weight_scale * layer_inputs[-1] @ weights[last.weight].T
    outputs = outputs if last.bias is None else outputs + weights[last.bias]
    expected = model(inputs)
    assert torch.allclose(outputs, expected, atol=1e-12)
    assert stack.input_size == 12
    assert stack.outputs == expected.shape[1]
    assert signals[0].shape == (stack.outputs, 4, stack.layers[0].units)


@pytest.mark.parametrize("name", OTHERS)
def test_anything_else_is_not_called_a_stack(name):
    assert dense_stack(OTHERS[name]) is None


def test_names_of_activations():
    assert dense_stack(STACKS["viewing"]).activation == "relu"
    assert dense_stack(STACKS["leaking"]).activation == "leakyrelu"
    assert dense_stack(STACKS["deep linear"]).activation == "identity"
    assert dense_stack(STACKS["one layer"]).activation is None


def test_a_bare_linear_layer_is_a_stack_of_one():
    stack = dense_stack(nn.Linear(3, 2, bias=False))
    assert stack is not None
    assert (stack.layers[0].weight, stack.layers[0].bias, stack.activation) == ("weight", None, None)


def test_reading_a_module_does_not_change_it():
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True), nn.Linear(3, 1)).train()
    dense_stack(model)
    assert model[1].inplace
    assert model.training


def test_a_chain_lists_the_steps_before_the_first_dense_layer():
    steps = read_chain(ConvNet(channels=2, depth=1).build((1, 8, 8), 2))
    assert [step.kind for step in steps] == ["other", "activation", "other", "shape", "dense"]
    assert read_chain(Residual()) is None


class Branching(nn.Module):
    """A frozen part no tracer understands, then a head whose output goes two ways."""

    def __init__(self, residual=True):
        super().__init__()
        self.frozen = Untraceable()
        self.head = nn.Linear(6, 6)
        self.out = nn.Linear(6, 2)
        self.residual = residual

    def forward(self, x):
        x = self.head(self.frozen(x).flatten(1))
        return self.out(functional.relu(x) + x) if self.residual else self.out(functional.relu(x))


class Untraceable(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Linear(6, 6)

    def forward(self, x):
        return self.scale(x) if x.sum() > 0 else -self.scale(x)


class Direct(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.layer = nn.Linear(4, 1)

    def forward(self, x):
        return self.layer(x * self.weight)


def every(model):
    return {name for name, _ in model.named_parameters()}


def test_the_first_layer_of_a_plain_network():
    model = MLP(width=5).build((1, 2, 2), 1)
    step, following = first_trained(model, every(model))
    assert (step.kind, step.name, step.layer.weight, step.layer.bias) == (
        "dense",
        "layer1",
        "layer1.weight",
        "layer1.bias",
    )
    assert (following.kind, following.name) == ("activation", "relu")


def test_the_first_layer_behind_frozen_ones():
    model = MLP(width=5, depth=3).build((1, 2, 2), 1)
    step, following = first_trained(model, {"layer3.weight", "layer4.bias"})
    assert (step.name, following.name) == ("layer3", "relu")


@pytest.mark.parametrize("residual", [False, True])
def test_a_frozen_part_may_be_anything(residual):
    model = Branching(residual)
    step, following = first_trained(model, {"head.weight", "head.bias", "out.weight"})
    assert step.name == "head"
    assert following is None if residual else following.name == "relu"


def test_dropout_between_layer_and_activation_is_skipped():
    model = nn.Sequential(nn.Linear(4, 3), nn.Dropout(), nn.ReLU(), nn.Linear(3, 1))
    assert first_trained(model, every(model))[1].name == "relu"


def test_normalisation_between_layer_and_activation_is_not():
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 1))
    assert first_trained(model, every(model))[1].kind == "other"


def test_a_convolution_is_no_dense_layer():
    model = ConvNet(channels=2).build((1, 8, 8), 2)
    assert first_trained(model, every(model))[0].layer is None


def test_a_bare_parameter_is_no_dense_layer():
    model = Direct()
    step, following = first_trained(model, every(model))
    assert (step.kind, step.name, step.layer, following) == ("other", "weight", None, None)
    assert first_trained(model, {"layer.weight"})[0].name == "layer"


def test_a_module_that_cannot_be_traced_has_no_first_layer():
    model = Untraceable()
    assert first_trained(model, every(model)) is None


def test_the_last_layer_has_no_follower():
    model = MLP(width=5).build((4,), 1)
    assert first_trained(model, {"layer3.weight"})[1] is None
    assert first_trained(nn.Linear(3, 1), {"weight"})[1] is None
