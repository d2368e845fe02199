"""Exact, certified recovery of training inputs from the weight change of the first layer."""

import math
from dataclasses import replace
from typing import Annotated

import torch
from jaxtyping import Float
from pydantic import Field, InstanceOf, PositiveInt
from torch import Tensor

from exhume.attacks.attack import Attack
from exhume.attacks.gates.certificate import Certificate, Doubt, certify
from exhume.attacks.gates.check import check_rows, read_rows
from exhume.attacks.gates.compression import compress_values
from exhume.attacks.gates.explaining import explanations
from exhume.attacks.gates.features import doubt_features, in_units_of_features
from exhume.attacks.gates.input_range import fit_scale, is_inside_range, range_ends
from exhume.attacks.gates.known_inputs import Choice, are_trained_on, log_p_own_rows
from exhume.attacks.gates.mixing import has_decayed
from exhume.attacks.gates.peeling import can_peel
from exhume.attacks.gates.precision import fit_families
from exhume.attacks.gates.problem import RowProblem, pose_problem
from exhume.attacks.gates.readout import divide_by_constant
from exhume.attacks.gates.rounds import RowSearch
from exhume.attacks.gates.rows import polish
from exhume.attacks.gates.rules import CertificateRules
from exhume.attacks.gates.separation import separate
from exhume.attacks.gates.shared_part import SEPARATED, add_candidates
from exhume.attacks.gates.significance import log_p_generic
from exhume.attacks.gates.squares import SUMS_TO_SEARCH, add_squares
from exhume.attacks.gates.sums import explain_rows
from exhume.attacks.lattice.level_lattice import LevelLattice, recover_images
from exhume.attacks.lattice.whole_vectors import NEEDED_CONTRAST, QUICK_CONTRAST, largest_contrast, span_in_levels
from exhume.attacks.levels import prove_by_levels
from exhume.clues.clues import clues_of
from exhume.clues.first_layer import backward_signals
from exhume.clues.frozen_statistics import computes_as_released
from exhume.clues.second_moment import read_unit_squares
from exhume.clues.subspace import InputSubspace
from exhume.core.errors import Refusal
from exhume.core.json_values import to_json_value
from exhume.core.progress import Tick
from exhume.core.run_context import STOPS, OutOfTime, RunContext
from exhume.core.settings import settings
from exhume.core.text import count_noun
from exhume.inversion.feature_span import FeatureSpan
from exhume.inversion.through_trunk import SpanProof, invert_features
from exhume.models.passes import is_same_in_training
from exhume.records import AttackerView, Outcome, Reconstruction

ON_LEVELS = "it is one of several images in the span of all inputs, and some are missing"
"""The doubt about images of an incomplete lattice."""


@settings
class GateCertificate(Attack):
    """Recover every training input exactly, and prove each one without seeing any data.

    From the change of the first dense layer under (S)GD: its rank is the training set size, its column space contains
    the inputs, and the zeros that ReLU leaves in its rows single out each of them
    (:mod:`exhume.attacks.gates.rounds`). An input is certified when its gates predict where its row is zero far better
    than chance allows (:mod:`exhume.attacks.gates.check`, :mod:`exhume.attacks.gates.significance`).
    """

    starts: PositiveInt | None = None
    """Starting points per round, searched all at once; None: three per training input."""
    rounds: PositiveInt = 100
    """Largest number of rounds."""
    patience: PositiveInt = 12
    """Number of rounds without a new row after which the search stops."""
    error_rate: Annotated[float, Field(gt=0, lt=1)] = 1e-3
    """Probability, over the whole run, of certifying anything that was not trained on."""
    descents: PositiveInt = 25
    """Where the layer reads features: largest number of descents in the search for the inputs that have them."""
    warm_start: InstanceOf[Attack] | None = None
    """An attack whose reconstructions are the first that explain the evidence; None: a short weight-difference attack,
    where it applies."""

    def check(self, view: AttackerView) -> None:
        """Refuse views without a dense layer that has a flat-sided activation and inputs that hardly moved."""
        clues_of(view).require_gate_layers()
        if self.warm_start is not None:
            self.warm_start.check(view)

    def recover(self, view: AttackerView, context: RunContext) -> Reconstruction:
        """Search in rounds until every row is found or nothing new turns up, then read out and certify."""
        subspace = clues_of(view).require_gate_subspace()
        evidence = subspace.layer.evidence
        ends = (evidence.before, evidence.after)
        rules = CertificateRules(
            error_rate=self.error_rate / 2
        )  # the other half is for proofs by levels or by the span of features
        signals = tuple(backward_signals(view, end, subspace.layer) for end in ends)
        problem = pose_problem(
            subspace,
            signals,
            has_exact_signals=is_same_in_training(view.model, view.input_shape),
            ends=range_ends(view, subspace.basis) if subspace.layer.reads_input else None,
            certificate=rules,
        )
        compressed, columns = compress_values(problem)
        squares = read_unit_squares(subspace)
        if squares is not None:
            problem = add_squares(problem, squares)
            compressed = add_squares(compressed, squares, SUMS_TO_SEARCH)
        search = RowSearch(
            problem=compressed,
            generator=context.generator,
            starts=self.starts,
            explain=explanations(view, subspace, columns @ compressed.basis, self.warm_start, context, problem.search),
        )
        about = {"attack": repr(self), "seed": context.generator.initial_seed()}
        saved = context.saved("row search", about, problem.rows, problem.basis)
        if saved is not None and (state := saved.load()) is not None:
            search.unpack(*state)
        # Features are worth little without the inputs behind them, which take as long to find.
        limited = context.share(0.5) if context.wraps_up and not subspace.layer.reads_input else context
        search.tick = lambda: limited.report("recover", len(search.trusted), problem.rank, f"round {search.rounds + 1}")
        separated: Tensor | None = None
        on_levels: Tensor | None = None
        contrast = self._contrast(view, subspace)
        while search.rounds < self.rounds and not search.is_finished(self.patience):
            # Features that moved are never certified, so that rows are worth no more than separated inputs. They may
            # double the rank, too: each leaves its direction of movement beside it.
            is_early = not subspace.layer.inputs_stood_still and search.rounds == 0
            before = search.pack()
            try:
                search.tick()
                if search.idle >= problem.search.patience or is_early:
                    if separated is None:
                        separated = separate(view, subspace, problem, search.tick)
                    if len(separated) > max(len(search.found), problem.rank // 4 if is_early else 0):
                        break
                if contrast >= NEEDED_CONTRAST and self._is_time_for_levels(search, contrast >= QUICK_CONTRAST):
                    on_levels, contrast = self._look_for_levels(view, subspace, problem, search, context), -math.inf
                if not search.is_settled:
                    search.run_round()
            except STOPS as stop:  # this round is lost, and nothing before it
                if saved is not None and before[0]["rounds"]:
                    saved.save(*before)
                if not (isinstance(stop, OutOfTime) and stop.wraps_up):
                    raise
                search.unpack(*before, keep_inputs=True)
                break
            if saved is not None and saved.is_due():
                saved.save(*search.pack())
        is_whole, state = not context.cut, search.pack()
        try:
            found = self._conclude(view, subspace, problem, search, context, separated, on_levels)
        except STOPS:
            if saved is not None and is_whole:
                saved.save(*state)
            raise
        if saved is not None and is_whole and context.cut:
            saved.save(*state)  # so that the same call judges what was found, and searches no more
        return found

    def _conclude(
        self,
        view: AttackerView,
        subspace: InputSubspace,
        problem: RowProblem,
        search: RowSearch,
        context: RunContext,
        separated: Tensor | None,
        on_levels: Tensor | None,
    ) -> Reconstruction:
        """Read out what a search found and judge it; what there is no time to judge stays unproven."""
        ending = context.with_grace()

        def tick() -> None:
            ending.report("recover", len(search.found), problem.rank, "certify")

        context.progress("recover", len(search.found), problem.rank, "certify")
        found = self._result(view, subspace, problem, search, ending, tick)
        if int(found.certified.sum()) < problem.rank and not search.inputs.are_all:
            if separated is None:
                nothing = found.inputs[:0].cpu()
                separated = ending.within_time(lambda: separate(view, subspace, problem, tick), nothing)
            found = add_candidates(found.cpu(), _unknown(separated, found, problem.certificate.precision), SEPARATED)
        if subspace.layer.reads_input:
            if not problem.has_bias:  # an input of any other scale lies on levels as well
                return found
            inputs = divide_by_constant(problem, search.inputs.codes @ problem.basis.T)[:, : view.input_size]
            pixels, known = view.to_pixels(inputs.float()).cpu(), search.inputs.log_p.cpu()
            found, known = _merge(found.cpu(), pixels, known, problem.certificate.precision)
            tried = search.inputs.tried + len(found)

            def confirm(inputs: Tensor) -> Tensor:
                codes, others = _codes(view, problem, inputs), _codes(view, problem, found.inputs)
                unproven = torch.zeros(len(inputs), dtype=torch.bool)
                return ending.within_time(
                    lambda: are_trained_on(problem, codes, others, choice=search.inputs.choice, tick=tick), unproven
                )

            found = prove_by_levels(view, found, self.error_rate / 2, problem.rank - 1, tried, confirm, known)
            if on_levels is None:
                return found
            # These are on levels by construction, which proves nothing.
            return add_candidates(found, _unknown(on_levels, found, problem.certificate.precision), ON_LEVELS)
        guess, evidence = 1e-3 if problem.gates_are_exact else 1e-2, subspace.layer.evidence

        def log_p(features: Tensor) -> Tensor:
            codes, unproven = _encode(problem, features), torch.zeros(len(features), dtype=torch.float64)
            return ending.within_time(lambda: log_p_own_rows(problem, codes, tick), unproven)

        proof = None
        if subspace.layer.inputs_stood_still and problem.has_bias:  # without a bias, inputs of any scale fit
            span = FeatureSpan(basis=subspace.basis, strengths=subspace.strengths, noise=subspace.noise)
            proof = SpanProof(span=span, log_p=log_p, error_rate=self.error_rate / 2)
        return invert_features(
            view,
            subspace.layer.name,
            evidence.after,
            found,
            context,
            descents=self.descents,
            as_released=computes_as_released(view, subspace.layer.name, evidence),
            unknown_error=guess,
            proof=proof,
        )

    def _contrast(self, view: AttackerView, subspace: InputSubspace) -> float:
        """Return the contrast with which the lattice of levels may be found; minus infinity where it does not apply."""
        try:
            LevelLattice().check(view)
            return largest_contrast(span_in_levels(view, subspace))
        except Refusal:
            return -math.inf

    def _is_time_for_levels(self, search: RowSearch, is_quick: bool) -> bool:
        """Return whether to look for levels now.

        Single units often show all inputs of one gradient, which is quicker. Where reduction takes minutes, rows come
        first, unless the first round finds less than half of them.
        """
        if is_quick:
            return search.rounds == int(can_peel(search.problem))
        finds_few = search.rounds >= 1 and 2 * len(search.trusted) < search.problem.rank
        return finds_few or search.idle >= search.problem.search.patience

    def _look_for_levels(
        self, view: AttackerView, subspace: InputSubspace, problem: RowProblem, search: RowSearch, context: RunContext
    ) -> Tensor | None:
        """Let the search end with the inputs that the lattice of levels shows, if these are all, whatever their gates.

        Whether another choice of images fits as well is left to the rows that they determine. An incomplete choice is
        returned, in pixel units.
        """
        lattice = LevelLattice(error_rate=self.error_rate / 2)
        images = recover_images(view, subspace, context, lattice, with_proof=False)
        pixels = view.to_pixels(images.images)
        if not images.is_complete:
            return pixels.float().cpu()
        search.accept(_codes(view, problem, pixels), images.log_p, Choice(images.has_rivals))
        return None

    def _result(
        self,
        view: AttackerView,
        subspace: InputSubspace,
        problem: RowProblem,
        search: RowSearch,
        context: RunContext,
        tick: Tick,
    ) -> Reconstruction:
        # The zeros of a chosen row may still scatter more than noise. In a state, entries of any size are no noise.
        # Rows that follow from proven inputs may have too few zeros to be fitted to them.
        is_final = has_decayed(problem) or search.inputs.are_all
        rows, families = search.found, list[list[int]]()
        if not is_final:
            rows = context.within_time(lambda: polish(problem, search.found, tick=tick), rows)
        rows, families = context.within_time(lambda: fit_families(problem, rows, tick), (rows, families))
        tried = max(search.tried, 1)
        checked = context.within_time(lambda: check_rows(problem, rows, tick), None) or read_rows(problem, rows)
        inputs = checked.inputs[:, : subspace.layer.input_size]
        problem = in_units_of_features(problem, subspace.layer, inputs)
        rules = problem.certificate
        scale, is_scaled = (1.0, True) if problem.has_bias else fit_scale(view, inputs, rules)
        inputs = inputs * scale

        def judge() -> tuple[Tensor, Certificate]:
            by_row, explained = log_p_generic(problem, rows), None
            if problem.has_known_values and checked.is_complete:
                explained = explain_rows(problem, rows, checked.inputs * scale, tick)
                by_row = torch.minimum(by_row, explained.log_p) + math.log(2)  # two tests for the same row
            # Neither may be an accident: the zeros or values of the row, and that the input read out for it predicts
            # zeros.
            log_p = (torch.maximum(checked.log_p, by_row) + math.log(tried)).clamp(max=0.0)
            return log_p, certify(problem, checked, log_p, scale, families, explained, tick)

        unjudged = torch.zeros_like(checked.log_p), Certificate.unjudged(rows)
        log_p, certificate = context.within_time(judge, unjudged)
        certificate = certificate.with_doubt(Doubt.RANGE, ~(is_inside_range(view, inputs, rules) & is_scaled))
        certificate = doubt_features(certificate, view, subspace.layer, inputs, rules)
        certified = certificate.is_certified
        count = int(certified.sum())
        outcome = Outcome.PARTIAL if count else Outcome.NOTHING_FOUND
        return Reconstruction(
            inputs=view.to_pixels(inputs.float()) if subspace.layer.reads_input else inputs.float(),
            certified=certified,
            confidence=checked.agreement.float(),
            p_values=log_p.exp(),
            outcome=Outcome.CERTIFIED if count == problem.rank else outcome,
            message=f"{count} of {count_noun(problem.rank, 'training input')} "
            f"{'is' if count == 1 else 'are'} certified.",
            diagnostics=subspace.describe()
            | {
                "agreement": checked.agreement.tolist(),
                "contradictions": checked.contradictions.tolist(),
                "error_bounds": to_json_value(certificate.errors),
                "doubts": [doubt.value for doubt in certificate.doubts],
                "candidates_tried": tried,
            },
        )


def _unknown(inputs: Float[Tensor, "input ..."], found: Reconstruction, precision: float) -> Float[Tensor, "new ..."]:
    """Return the inputs that are not among the found ones, up to a part of their norm."""
    return inputs[(_relative_distances(inputs, found) > precision).all(dim=1)]


def _codes(view: AttackerView, problem: RowProblem, inputs: Float[Tensor, "input ..."]) -> Float[Tensor, "input rank"]:
    """Return inputs in pixel units in coordinates of the basis."""
    return _encode(problem, view.to_model(inputs.to(problem.basis)).flatten(1))


def _encode(problem: RowProblem, inputs: Float[Tensor, "input value"]) -> Float[Tensor, "input rank"]:
    """Return inputs of the layer in coordinates of the basis."""
    flat = inputs.to(problem.basis)
    whole = torch.cat([flat, torch.ones_like(flat[:, :1])], dim=1) if problem.has_bias else flat
    return whole @ problem.basis


def _merge(
    found: Reconstruction, inputs: Float[Tensor, "input ..."], log_p: Float[Tensor, " input"], precision: float
) -> tuple[Reconstruction, Float[Tensor, " candidate"]]:
    """Put inputs that levels prove in place of unproven ones that are nearly the same.

    Returns:
        The reconstruction, and the log p-values of these inputs; NaN for others.
    """
    distances = _relative_distances(inputs, found)
    merged, is_new = found.inputs.clone(), ~((distances <= precision) & found.certified).any(dim=1)
    known = torch.full((len(found),), torch.nan, dtype=torch.float64)
    for place in (~found.certified).nonzero()[:, 0].tolist():  # others are proven as they are
        near = ((distances[:, place] <= precision) & is_new).nonzero()[:, 0]
        if len(near):
            nearest = int(near[distances[near, place].argmin()])
            merged[place], known[place], is_new[nearest] = inputs[nearest], log_p[nearest], False
    known = torch.cat([known, log_p[is_new].to(known)])
    return add_candidates(replace(found, inputs=merged), inputs[is_new], Doubt.MISSING_ROWS), known


def _relative_distances(inputs: Float[Tensor, "input ..."], found: Reconstruction) -> Float[Tensor, "input found"]:
    """Return the distances of inputs from the found ones, relative to their norms."""
    flat = inputs.flatten(1)
    distances: Tensor = torch.cdist(flat, found.inputs.cpu().flatten(1).to(flat)) / flat.norm(dim=1, keepdim=True)
    return distances
