"""Networks whose gates move: few units, default initial weights, pixels left in [0, 1]."""

import pytest
from torch import nn
from torch.nn import functional

from exhume.attacks import GateCertificate
from exhume.records import AttackerView
from tests.attacks.gates.victims import build_seeded, draw, score, train_by_plain_loop


def attack_eight_digits(*, width, outputs, seed=0):
    """Train on eight digits; return the score, and the fraction of gates that differ between the two ends."""
    data = draw("digits", 10, seed=seed, centre=False, classes="all" if outputs > 1 else "odd-even")
    inputs, labels = data.train.inputs[:8], data.train.labels[:8]
    model = build_seeded(
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, outputs)), seed
    )
    loss = functional.cross_entropy if outputs > 1 else functional.binary_cross_entropy_with_logits
    targets = labels if outputs > 1 else labels[:, None].float()
    initial, final = train_by_plain_loop(model, inputs, targets, loss=loss, lr=0.1, steps=200)
    view = AttackerView(model=model, initial=initial, final=final, input_shape=(1, 8, 8), bounds=(0.0, 1.0))
    before, after = (
        functional.linear(inputs.flatten(1), weights["1.weight"], weights["1.bias"]) > 0 for weights in (initial, final)
    )
    return score(GateCertificate(rounds=24, patience=6).run(view, seed=0, device="cpu"), inputs), float(
        (before != after).double().mean()
    )


@pytest.mark.parametrize(("width", "outputs"), [(128, 1), (256, 10)])
def test_most_inputs_come_out_although_many_gates_moved(width, outputs):
    reached, flipped = attack_eight_digits(width=width, outputs=outputs)
    assert flipped > 0.1
    assert reached.recovered >= 7
    assert reached.exact >= 5
    assert reached.false == 0


def test_nothing_false_is_certified_where_too_many_moved():
    reached, flipped = attack_eight_digits(width=128, outputs=10)
    assert flipped > 0.2
    assert reached.false == 0
