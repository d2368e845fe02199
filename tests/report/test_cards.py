"""Cards: the values that the page shows for each exhibit."""

import base64
import io

import numpy as np
import torch
from PIL import Image

from exhume.report.cards import MOST_COLUMNS, build_card, encode_png
from exhume.report.exhibits import select_exhibits, to_pixels
from tests.report.synthetic_audits import make_audit


def build_cards(evaluation):
    shown = select_exhibits(evaluation)
    return [build_card(exhibit, evaluation, "first", place) for place, exhibit in enumerate(shown)]


def test_cards_are_classified_and_described():
    cards = build_cards(make_audit())
    assert [card["kind"] for card in cards] == ["certified"] * 4 + ["false"] + ["good"] * 2 + ["other"] * 1
    assert cards[0]["proof"] == "certified: this image was in the training set, p < 1e-12"
    assert cards[4]["proof"] == "certificate that matches none of the training images given"
    assert cards[5]["proof"] is None
    assert cards[0]["label"] == ("cat", "dog")[cards[0]["example"] % 2]
    assert set(cards[0]["images"]) == {"recovered", "trained on", "nearest held out"}
    assert set(cards[-1]["images"]) == {"candidate", "trained on", "nearest held out"}


def test_each_card_says_why_it_is_not_proven():
    doubts = [""] * 4 + ["too noisy", "outside the range"] + [""] * 3
    cards = build_cards(make_audit(diagnostics={"doubts": doubts}))
    assert [card["doubt"] for card in cards[:4]] == [None] * 4
    assert {card["doubt"] for card in cards if card["kind"] == "good"} == {
        "not proven: too noisy",
        "not proven: outside the range",
    }
    none = make_audit(certified=torch.zeros(9, dtype=torch.bool), p_values=None)
    assert {card["doubt"] for card in build_cards(none)} == {"not proven: this attack gives no proofs"}


def test_cards_without_data_are_named_after_their_candidate():
    card = build_cards(make_audit(known=False))[0]
    assert card["name"] == "candidate 0"
    assert list(card["images"]) == ["recovered"]
    assert card["error"] is None


def test_records_are_rows_of_their_first_columns():
    card = build_cards(make_audit((MOST_COLUMNS + 5,)))[0]
    assert card["images"] == {}
    assert len(card["rows"]) == MOST_COLUMNS
    assert card["columns_left_out"] == 5
    assert card["rows"][0][0] == "value 0"


def test_images_are_encoded_without_loss():
    evaluation = make_audit((3, 32, 32))
    image = evaluation.found.inputs[0]
    decoded = Image.open(io.BytesIO(base64.b64decode(encode_png(image, evaluation).partition(",")[2])))
    assert np.array_equal(np.asarray(decoded), to_pixels(image, evaluation.bounds))
