"""Settings of attacks from text."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal, final

import pytest

from exhume import attacks
from exhume.attacks.attack import Attack
from exhume.cli.attack_settings import build_attacks, known_attacks
from exhume.core.errors import ExhumeError
from exhume.core.run_context import RunContext
from exhume.records import AttackerView, Reconstruction


@final
@dataclass(frozen=True, kw_only=True)
class Spade(Attack):
    """An attack with a setting of every kind."""

    steps: int = 1
    lr: float = 0.1
    lr_or_auto: float | None = None
    count: int | float = 1
    where: Literal["first", "last"] = "first"
    name: str = ""
    deep: bool = False
    sizes: tuple[int, ...] = ()
    pair: tuple[int, float] = (1, 1.0)
    helper: Attack | None = None
    unspeakable: Path | None = None

    def __post_init__(self) -> None:
        if self.steps < 0:
            raise ExhumeError("A spade takes no negative steps.")

    def check(self, view: AttackerView) -> None:
        """Apply to everything."""

    def recover(self, view: AttackerView, context: RunContext) -> Reconstruction:
        """Never dig."""
        raise AssertionError("settings are all there is to this attack")


@pytest.fixture(autouse=True)
def _spade(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attacks, "__all__", [*attacks.__all__, "Spade"])
    monkeypatch.setattr(attacks, "Spade", Spade, raising=False)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("steps=2000", 2000),
        ("steps=20_000", 20000),
        ("steps=1e3", 1000),
        (" steps = 3 ", 3),
        ("lr=1e-3", 1e-3),
        ("lr=2", 2.0),
        ("lr_or_auto=none", None),
        ("lr-or-auto=0.5", 0.5),
        ("count=2", 2),
        ("where=last", "last"),
        ("name=none", "none"),
        ("name=a=b", "a=b"),
        ("name=12", "12"),
        ("deep=true", True),
        ("deep=no", False),
        ("sizes=[1, 2, 3]", (1, 2, 3)),
        ("pair=[1, 2]", (1, 2)),
        ("helper=spade", Spade()),
        ("helper=none", None),
        ("unspeakable=none", None),
        ("spade.steps=5", 5),
    ],
)
def test_texts_become_settings(text: str, value: object) -> None:
    attack = build_attacks(["spade"], [text])["spade"]
    field = text.partition("=")[0].strip().rpartition(".")[2].replace("-", "_")
    assert getattr(attack, field) == value
    assert type(getattr(attack, field)) is type(value)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("steps=1.5", "a whole number"),
        ("steps=99999999999999999999", "a whole number"),
        ("steps=true", "a whole number"),
        ("steps=none", "a whole number"),
        ("steps=-1", "negative"),
        ("lr=fast", "a number"),
        ("lr=true", "a number"),
        ("where=middle", "first or last"),
        ("deep=2", "true or false"),
        ("sizes=3", "a list"),
        ("sizes=[1.5]", "a list"),
        ("pair=[1]", "a list"),
        ("helper=shovel", "the name of an attack"),
        ("unspeakable=/etc", "none"),
        ("step=3", "did you mean steps"),
        ("xyzzy=3", "there are"),
        ("=3", "NAME=VALUE"),
    ],
)
def test_texts_that_fit_no_setting(text: str, word: str) -> None:
    with pytest.raises(ExhumeError, match=word):
        build_attacks(["spade"], [text])


def test_a_setting_goes_to_every_attack_that_is_named() -> None:
    built = build_attacks(["spade", "weight-difference"], ["steps=7", "spade.lr=3"])
    assert [attack.steps for attack in built.values()] == [7, 7]  # type: ignore[attr-defined]
    with pytest.raises(ExhumeError, match="weight-difference has no setting 'deep'"):
        build_attacks(["spade", "weight-difference"], ["deep=true"])


def test_every_exported_attack_has_a_name_and_defaults() -> None:
    known = known_attacks()
    assert {"gate-certificate", "weight-difference"} <= known.keys()
    for name, kind in known.items():
        assert build_attacks([name], [])[name] == kind()
        assert fields(kind)
