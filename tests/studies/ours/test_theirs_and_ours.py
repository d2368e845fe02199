"""The paper's recipe and our attacks on the same network."""

from exhume.studies.study import read_result


def test_the_certificate_is_ahead_of_the_recipe_on_the_same_network(run_smoke):
    result = read_result(run_smoke("theirs-and-ours"))
    theirs, _, proven = result["numbers"]["rows"]
    assert theirs["training_loss"] == proven["training_loss"]
    assert proven["certified"] == proven["exact"] == 8 > theirs["exact"]
    assert proven["false_certificates"] == 0
    assert "finds more exact images than the recipe of the paper" in result["summary"]
    assert "was cut to" in result["summary"]
