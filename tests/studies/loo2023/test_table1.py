"""Table 1: accuracy after training on distilled images, and the copies in them."""

from exhume.studies.study import read_result


def test_the_table_has_every_method_and_counts_copies(run_smoke):
    folder = run_smoke("table1")
    result = read_result(folder)
    assert (folder / "table1-digits.png").stat().st_size > 1000
    found = result["numbers"]["digits"]
    assert found["full data"]["infinite width"]["mean"] > found["random images"]["infinite width"]["mean"]
    assert found["full data"]["copies"] == [60]
    assert found["random images"]["copies"] == [8]
    assert found["KIP"]["copies"] == [0]
    assert "In the paper, on mnist: 89.6 %, 92.8 %, and from 91.5 % to 57.4 %." in result["summary"]
