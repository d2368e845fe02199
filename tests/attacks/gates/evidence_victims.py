"""Views that hold a gradient or the state of an optimiser instead of initial weights."""

import torch
from torch.nn import functional

from exhume.models.mlp import MLP
from exhume.records import AttackerView, Dataset

OPTIMISERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9),
    "Adam": lambda p: torch.optim.Adam(p, lr=1e-3),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=1e-3),
    "NAdam": lambda p: torch.optim.NAdam(p, lr=1e-3),
    "RAdam": lambda p: torch.optim.RAdam(p, lr=1e-3),
    "centred RMSprop": lambda p: torch.optim.RMSprop(p, lr=1e-3, centered=True),
    "SGD with decay": lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9, weight_decay=0.1),
    "Adam with decay": lambda p: torch.optim.Adam(p, lr=1e-5, weight_decay=0.1),
}


def build(data: Dataset, architecture, outputs=1, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return architecture.build(data.input_shape, outputs, generator).to(dtype)


def loss_of(model, data: Dataset):
    weight = next(model.parameters())
    outputs = model(data.to_model(data.train.inputs.to(weight.dtype)))
    return functional.mse_loss(outputs, data.train.labels[:, None].to(weight.dtype))


def gradient_view(data: Dataset, architecture=MLP(width=256), final=None, **settings) -> AttackerView:  # noqa: B008
    """Return what an attacker holds who saw one gradient."""
    model = build(data, architecture, **settings)
    if final is not None:
        model.load_state_dict(final)
    loss_of(model, data).backward()
    return view_with(data, model, gradient={name: weight.grad for name, weight in model.named_parameters()})


def state_view(data: Dataset, architecture=MLP(width=256), *, optimiser="Adam", steps=50, **settings) -> AttackerView:  # noqa: B008
    """Train with an optimiser and return what an attacker holds who has the checkpoint."""
    model = build(data, architecture, **settings)
    rule = OPTIMISERS[optimiser](model.parameters())
    for _ in range(steps):
        rule.zero_grad()
        loss_of(model, data).backward()
        rule.step()
    slots = {"SGD": "momentum_buffer", "SGD with decay": "momentum_buffer", "centred RMSprop": "grad_avg"}
    slot = slots.get(optimiser, "exp_avg")
    state = {name: rule.state[weight][slot].clone() for name, weight in model.named_parameters()}
    return view_with(data, model, optimiser_state=state)


def view_with(data: Dataset, model, **evidence) -> AttackerView:
    final = {name: weight.detach().clone() for name, weight in model.state_dict().items()}
    return AttackerView(
        model=model, final=final, input_shape=data.input_shape, bounds=data.bounds, offset=data.offset, **evidence
    )


def adam_view(data: Dataset, architecture=MLP(width=256), *, steps=60, size=4, seed=0):  # noqa: B008
    """Train with AdamW on batches; return the view with the whole state, and which units each input ever fired."""
    model = build(data, architecture, seed=seed)
    rule, generator = torch.optim.AdamW(model.parameters(), lr=1e-3), torch.Generator().manual_seed(seed)
    inputs, targets = data.to_model(data.train.inputs), data.train.labels[:, None].float()
    first = next(module for module in model.modules() if isinstance(module, torch.nn.Linear))
    fired = torch.zeros(len(inputs), first.out_features, dtype=torch.bool)
    for _ in range(steps):
        chosen = torch.randperm(len(inputs), generator=generator)[:size]
        with torch.no_grad():
            fired[chosen] |= first(inputs[chosen].flatten(1)) > 0
        rule.zero_grad()
        functional.mse_loss(model(inputs[chosen]), targets[chosen]).backward()
        rule.step()
    return view_with(data, model, optimiser_state=rule.state_dict()), fired
