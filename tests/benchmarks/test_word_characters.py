"""The benchmark of embeddings of characters."""

from benchmarks.speed.word_characters import measure, table


def test_both_ways_are_timed() -> None:
    found = measure("demo", limit=12)
    assert found["sentences"] == 12 and found["words"] > 50
    assert found["flair"] > 0 and found["flair_nas"] > 0
    assert found["ratio"] == found["flair"] / found["flair_nas"]
    assert "| masakhaner_hau | 5,716 |" in table()
