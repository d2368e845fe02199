"""Groups of near-duplicates: their rows are found inside the span of mixtures."""

import torch

from exhume.attacks.gates.groups import cross_product, search_groups
from tests.attacks.gates.victims import cosines, made_problem

ALL = [0, 1, 2, 3, 4, 5]
MIXTURE = torch.tensor([[1.0, 0.5, -0.4], [0.3, 1.0, 0.6], [-0.5, 0.4, 1.0]], dtype=torch.float64)


def mixed_triple(seed):
    problem, rows, inputs = made_problem(twins=2, width=300, closeness=0.1, seed=seed)
    wrong = rows.clone()
    wrong[:3] = MIXTURE @ rows[:3]
    return problem, rows, wrong / wrong.norm(dim=1, keepdim=True), inputs @ problem.basis


def test_units_that_inputs_left_off_give_the_rows_of_a_group():
    for seed in range(3):
        problem, rows, wrong, codes = mixed_triple(seed)
        found = search_groups(problem, wrong, codes, ALL, torch.Generator().manual_seed(0))
        assert float(cosines(found, rows[:3]).amax(dim=0).min()) > 1 - 1e-5


def test_proposals_lie_in_the_span_of_their_group():
    problem, rows, wrong, codes = mixed_triple(0)
    found = search_groups(problem, wrong, codes, ALL, torch.Generator().manual_seed(0))
    span = torch.linalg.qr(rows[:3].T).Q
    torch.testing.assert_close(found @ span @ span.T, found, rtol=0, atol=1e-9)
    torch.testing.assert_close(found.norm(dim=1), torch.ones(len(found), dtype=torch.float64))


def test_rows_without_near_duplicates_have_no_group():
    problem, rows, inputs = made_problem()
    found = search_groups(problem, rows, inputs @ problem.basis, ALL, torch.Generator().manual_seed(0))
    assert found.shape == (0, 6)


def test_proposals_repeat_by_seed():
    problem, _, wrong, codes = mixed_triple(1)
    one, two = (search_groups(problem, wrong, codes, ALL, torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(one, two)


def test_the_cross_product_is_orthogonal_to_its_vectors():
    vectors = torch.randn(20, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    normals = cross_product(vectors)
    torch.testing.assert_close(
        (vectors @ normals[..., None]).abs().amax(), torch.tensor(0.0).double(), atol=1e-9, rtol=0
    )
    torch.testing.assert_close(normals.norm(dim=1), torch.ones(20, dtype=torch.float64))
