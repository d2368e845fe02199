"""What the paper observed about distilled sets, as statements about the numbers of Figures 6 to 9."""

from collections.abc import Mapping
from typing import Any

from exhume.studies.loo2023.observations import Observation

TRANSFER = 5.0
"""Points of accuracy that a set may lose between a network trained on all and one trained on it, and still transfer."""


def few_teach_much(numbers: Mapping[str, Any]) -> list[Observation]:
    """Figure 6: with too few candidates a reconstruction is a distillation, on which another network trains well."""
    kept = numbers["retrained_accuracy"] / numbers["original_accuracy"]
    return [
        Observation(
            states="20 reconstructions of 500 images teach almost what those do (96 % of the accuracy on CIFAR-10)",
            holds=kept > 0.85,
            values={"share of the accuracy kept": kept, "copies": float(numbers["copies"])},
        )
    ]


def only_kip_fails_to_transfer(numbers: Mapping[str, Any]) -> list[Observation]:
    """Figure 7: KIP fails to transfer to finite networks, while variations of RKIP succeed."""
    found = []
    for source, methods in numbers.items():
        size = max(methods["full data"], key=int)
        lost = {name: methods["full data"][size] - by[size] for name, by in methods.items() if name != "full data"}
        found.append(
            Observation(
                states="KIP fails to transfer to finite networks and RKIP does not",
                holds=lost["KIP"] > lost["RKIP"] and lost["RKIP"] < TRANSFER,
                values={f"{source}, {size} images, points lost by {name}": points for name, points in lost.items()},
            )
        )
    return found


def only_rkip_gives_originals_away(numbers: Mapping[str, Any]) -> list[Observation]:
    """Figure 8: the attack cannot recreate the original images after distillation, except after RKIP.

    Judged by good reconstructions, as the paper's curves are read; what stands out from held-out images, good or not,
    is told beside it.
    """
    found = []
    for source, sizes in numbers.items():
        total = sum(int(size) for size in sizes)
        good, recovered = (
            {
                name: float(sum(cells[name][key] for cells in sizes.values()))
                for name in ("KIP", "RKIP", "RKIP 5% noise")
            }
            for key in ("good", "recovered")
        )
        most = max(good["KIP"], good["RKIP 5% noise"])
        found.append(
            Observation(
                states="original images come back after RKIP, and hardly after KIP or RKIP with noise",
                holds=good["RKIP"] > most and most <= 0.1 * total,
                values={f"{source}, good of {total} after {name}": count for name, count in good.items()}
                | {f"recovered at 1 % false positives after {name}": count for name, count in recovered.items()},
            )
        )
    return found


def only_rkip_copies(numbers: Mapping[str, Any]) -> list[Observation]:
    """Figure 9: KIP does not copy training images, RKIP occasionally does, and noise prevents it."""
    found = []
    for source, methods in numbers.items():
        copies = {name: float(finding["copied_examples"]) for name, finding in methods.items()}
        found.append(
            Observation(
                states="RKIP copies some training images, KIP none, and 5 % noise prevents it",
                holds=copies["RKIP"] > 0 and copies["KIP"] == 0 and copies["RKIP 5% noise"] == 0,
                values={f"{source}, copies by {name}": count for name, count in copies.items()},
            )
        )
    return found
