"""Features that agree with the gradient which they cause through cross-entropy.

With features ``h_i`` and labels ``y_i``, the last layer ``z = W[h; 1]`` has the gradient ``E = s·Σ_i δ_i [h_i; 1]ᵀ``,
``δ_i = softmax(W[h_i; 1]) − e_{y_i}``. With fewer examples than classes, the features lie in the row space of ``E``:
``[h_i; 1] = a_i R``. That leaves ``r²`` unknowns and the scale ``s``, in ``(C − 1)·r`` equations and one more per
example: its constant is 1.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class LastLayerProblem:
    """The gradient of the last layer in coordinates of its row space."""

    mixtures: Float[Tensor, "output rank"]
    """The gradient of each output in these coordinates: ``E = mixtures @ R``."""
    logits: Float[Tensor, "output rank"]
    """The layer's weights in these coordinates: ``z = logits @ a``."""
    constant: Float[Tensor, " rank"]
    """The value of the constant in these coordinates: ``constant · a = 1``."""
    noise: float
    """Standard deviation of the error of an entry of the gradient."""

    @property
    def rank(self) -> int:
        """The number of examples, where it is below the number of outputs."""
        return self.mixtures.shape[1]

    @property
    def tolerance(self) -> float:
        """Largest relative residual that the errors of the gradient explain; wrong solutions leave 10⁻³ and more."""
        size: float = float(self.mixtures.norm())
        explained: float = 10 * self.noise * self.mixtures.numel() ** 0.5 / size
        return min(max(explained, 3e-7), 1e-4)


@dataclass(frozen=True, kw_only=True)
class Solution:
    """Features that nearly agree with the gradient, one row per example."""

    codes: Float[Tensor, "example rank"]
    """The features in coordinates of the row space."""
    labels: Float[Tensor, "example output"]
    """One-hot."""
    scale: float
    residual: float
    """Norm of all residuals, relative to the gradient."""

    def signals(self, problem: LastLayerProblem) -> Float[Tensor, "example output"]:
        """Return the gradient of the loss by the logits of each example."""
        return torch.softmax(self.codes @ problem.logits.T, dim=1) - self.labels


def start_from(
    problem: LastLayerProblem,
    labels: Float[Tensor, "example output"],
    probabilities: Float[Tensor, "example output"],
    scale: float,
) -> Solution:
    """Return the features that would explain the gradient if the network predicted these probabilities."""
    signals = probabilities - labels
    codes = torch.linalg.pinv(scale * signals.T) @ problem.mixtures
    return _with_residual(problem, Solution(codes=codes, labels=labels, scale=scale, residual=0.0))


def refine(problem: LastLayerProblem, solution: Solution, steps: int) -> Solution:
    """Solve the equations by Gauss–Newton with Levenberg–Marquardt damping, starting at ``solution``."""
    damping, count = 1e-3, solution.codes.numel()
    for _ in range(steps):
        gram, gradient = _normal_equations(problem, solution)
        diagonal = gram.diagonal() + 1e-12 * gram.diagonal().max()
        better = None
        while better is None and damping < 1e12:
            step, failed = torch.linalg.solve_ex(gram + damping * torch.diag(diagonal), -gradient)
            moved = Solution(
                codes=solution.codes + step[:count].reshape(solution.codes.shape),
                labels=solution.labels,
                scale=solution.scale * float(step[-1].clamp(-2, 2).exp()),
                residual=0.0,
            )
            moved = _with_residual(problem, moved)
            better = moved if not failed and moved.residual < solution.residual else None
            damping = damping * 8 if better is None else max(damping / 8, 1e-14)
        if better is None:
            break
        has_converged = better.residual > 0.999 * solution.residual and better.residual < problem.tolerance
        solution = better
        if has_converged:
            break
    return solution


def error_bounds(problem: LastLayerProblem, solution: Solution, tail: float = 5.5) -> Float[Tensor, " example"]:
    """Return a bound on the error of any value of the features of each example: ``tail`` standard deviations.

    Where the predictions of two examples of one class hardly differ, only the sum of their features is determined, and
    the bound of both is large.
    """
    gram, _ = _normal_equations(problem, solution)
    values, vectors = torch.linalg.eigh(gram)
    values = values.clamp(min=torch.finfo(torch.float64).eps * float(values[-1]))
    examples, rank = solution.codes.shape
    parts = vectors[:-1].reshape(examples, rank, -1) / values.sqrt()
    spread = torch.linalg.matrix_norm(parts, ord=2) * problem.noise / problem.mixtures.norm()
    readers = torch.linalg.pinv(solution.scale * solution.signals(problem).T)
    bounds: Tensor = tail * (spread + problem.noise * readers.norm(dim=1))
    return bounds


def _with_residual(problem: LastLayerProblem, solution: Solution) -> Solution:
    first, second = _residuals(problem, solution)
    residual = float((first.square().sum() + second.square().sum()).sqrt())
    return Solution(
        codes=solution.codes,
        labels=solution.labels,
        scale=solution.scale,
        residual=residual if residual == residual else float("inf"),
    )


def _residuals(problem: LastLayerProblem, solution: Solution) -> tuple[Tensor, Tensor]:
    signals = solution.signals(problem)
    explained = solution.scale * signals.T @ solution.codes
    return (problem.mixtures - explained) / problem.mixtures.norm(), solution.codes @ problem.constant - 1


def _normal_equations(problem: LastLayerProblem, solution: Solution) -> tuple[Tensor, Tensor]:
    """Return ``JᵀJ`` and ``Jᵀ`` times the residuals, for the codes (flat) and the logarithm of the scale.

    The derivative of residual ``(c, k)`` by code ``(j, l)`` is ``−f·(T_jcl a_jk + δ_jc 1_{k=l})`` with ``T_jcl`` that
    of ``δ_jc`` and ``f`` the scale over the norm of the gradient.
    """
    codes, signals = solution.codes, solution.signals(problem)
    first, second = _residuals(problem, solution)
    examples, rank = codes.shape
    chances = signals + solution.labels
    turns = chances[:, :, None] * (problem.logits[None] - (chances @ problem.logits)[:, None, :])
    factor = solution.scale / problem.mixtures.norm()
    explained = factor * signals.T @ codes
    crossed = torch.einsum("jcl,ic->jil", turns, signals)
    gram = torch.einsum("jcl,icm->jlim", turns, turns) * (codes @ codes.T)[:, None, :, None]
    gram = gram + torch.einsum("jil,jm->jlim", crossed, codes) + torch.einsum("il,ijm->jlim", codes, crossed)
    alike = torch.eye(rank).to(codes)
    gram = factor**2 * (gram + torch.einsum("ji,lm->jlim", signals @ signals.T, alike))
    own = torch.einsum("ji,l,m->jlim", torch.eye(examples).to(codes), problem.constant, problem.constant)
    gram = (gram + own).reshape(examples * rank, examples * rank)

    def pull(values: Float[Tensor, "output rank"]) -> Tensor:
        pulled: Tensor = -factor * (torch.einsum("jcl,cj->jl", turns, values @ codes.T) + signals @ values)
        return pulled

    by_scale = pull(-explained).flatten()
    gradient = (pull(first) + second[:, None] * problem.constant).flatten()
    whole = torch.cat(
        [
            torch.cat([gram, by_scale[:, None]], dim=1),
            torch.cat([by_scale, explained.square().sum()[None]])[None],
        ]
    )
    return whole, torch.cat([gradient, -(explained * first).sum()[None]])
