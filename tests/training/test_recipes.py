"""Recipes: settings that a training accepts, with the properties that the papers rely on."""

import pytest
import torch

from exhume.training import Training
from exhume.training.recipes import max_margin_recipe, small_first_layer, weight_decay_recipe

RECIPES = {
    "two classes": max_margin_recipe(),
    "many classes": max_margin_recipe(classes=10),
    "published": max_margin_recipe(published=True),
    "weight decay": weight_decay_recipe(),
}


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_a_recipe_is_a_training_that_no_loss_stops(recipe):
    training = Training(**{name: value for name, value in recipe.items() if name != "model"})
    assert training.stop_loss == training.patience == 0
    assert training.precision == "float64"


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_papers_network_is_homogeneous_above_a_small_first_layer(depth):
    """Biases in the first layer alone: scaling all weights by c scales outputs by c to the number of layers."""
    model = small_first_layer(width=16, depth=depth).build((6,), 1, torch.Generator().manual_seed(0)).double()
    inputs = torch.randn(5, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    with torch.no_grad():
        before = model(inputs)
        for weight in model.parameters():
            weight.mul_(1.5)
        torch.testing.assert_close(model(inputs), before * 1.5 ** (depth + 1))
    first, *_, last = model.parameters()
    assert first.std() < 0.1 * last.std()


def test_the_default_follows_the_published_flow_in_longer_steps():
    short, long = max_margin_recipe(published=True), max_margin_recipe()

    def pace(recipe):
        return recipe["lr"] / (1 - recipe["momentum"])

    assert pace(long) == pytest.approx(100 * pace(short))


def test_weight_decay_has_time_to_forget_the_initial_weights():
    recipe = weight_decay_recipe()
    rate = recipe["lr"] / (1 - recipe["momentum"]) * recipe["weight_decay"]
    assert recipe["steps"] * rate > 10
