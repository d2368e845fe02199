"""Which attacks apply to a network, which apply with caveats, which do not, and why."""

from collections.abc import Mapping

from exhume.attacks.attack import Attack
from exhume.auditing.catalogue import CATALOGUE, UNLISTED, by_cost, known_attacks
from exhume.clues.clues import Clues, Remark, clues_of
from exhume.core.errors import Refusal
from exhume.records import Applicability, Assessment, AttackerView, count_outputs


def assess(view: AttackerView, attacks: Mapping[str, Attack] | None = None) -> tuple[Assessment, ...]:
    """Return for each attack whether it applies to ``view``, and why.

    Uses the architecture, the final and, where known, the initial weights, and the public facts about the training.
    No attack runs.

    Args:
        view: what the attacker holds.
        attacks: attacks by name; every known one with its defaults when none are given.

    Returns:
        One assessment per attack, the cheapest attack first.
    """
    count_outputs(view.model, view.input_shape)  # refuses models that cannot be attacked
    chosen = attacks if attacks is not None else {name: kind() for name, kind in known_attacks().items()}
    clues = clues_of(view)
    order = by_cost()
    ranked = sorted(chosen, key=lambda name: order.index(name) if name in order else len(order))
    return tuple(_assess_one(name, chosen[name], clues) for name in ranked)


def _assess_one(name: str, attack: Attack, clues: Clues) -> Assessment:
    entry = CATALOGUE.get(name, UNLISTED)
    try:
        attack.check(clues.view)
    except Refusal as reason:
        obstacles: tuple[str, ...] = (str(reason),)
    else:
        obstacles = _sentences(entry.obstacles, clues)
    remarks = obstacles or _sentences(entry.caveats, clues)
    usual = Applicability.WITH_CAVEATS if remarks else Applicability.APPLIES
    return Assessment(
        attack=name,
        applies=Applicability.DOES_NOT if obstacles else usual,
        reasons=remarks,
        settings=repr(attack),
    )


def _sentences(remarks: tuple[Remark, ...], clues: Clues) -> tuple[str, ...]:
    return tuple(sentence for remark in remarks if (sentence := remark(clues)) is not None)
