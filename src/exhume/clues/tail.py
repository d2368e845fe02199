"""The dense layers above the features of a network, as a network of their own."""

from dataclasses import replace

from exhume.clues.first_layer import FirstLayer
from exhume.models.structure import dense_stack, part_above
from exhume.records import AttackerView, Weights


def tail_view(view: AttackerView, layer: FirstLayer) -> AttackerView | None:
    """Return the view of a layer and everything above it, whose inputs are the features that the layer reads.

    None unless that part is a stack of dense layers. Sums of gradients are those of the view, so the features are taken
    to have stood still.
    """
    tail = part_above(view.model, layer.name)
    stack = None if tail is None else dense_stack(tail)
    if tail is None or stack is None:
        return None
    names = tail.state_dict().keys()

    def restrict(weights: Weights) -> Weights:
        return {name: tensor for name, tensor in weights.items() if name in names}

    state = view.optimiser_state
    if state is not None:
        state = state.with_moments(restrict(state.first_moment), restrict(state.second_moment))
    return replace(
        view,
        model=tail,
        final=restrict(view.final),
        initial=None if view.initial is None else restrict(view.initial),
        gradient=None if view.gradient is None else restrict(view.gradient),
        more_gradients=(),
        optimiser_state=state,
        input_shape=(stack.input_size,),
        bounds=None,
        offset=None,
        architecture=None,
    )
