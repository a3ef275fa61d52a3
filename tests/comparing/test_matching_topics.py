"""Topics of two clusters side by side: copies of MirrorMaker in one or both directions, names that somebody gives."""

import pytest

from kafkalog.cli import main
from kafkalog.comparing.matching_topics import pair_topics
from kafkalog.errors import UnknownNameError


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (["t"], ["t"], {"t": "t"}),
        (["t"], ["a.t"], {"t": "a.t"}),
        (["t"], ["a.t", "c.t"], {}),
        (["t", "dead.t"], ["t", "dead.t"], {"t": "t", "dead.t": "dead.t"}),
        # a topic of its own there, which has the name of a copy
        (["t"], ["t", "retry.t"], {"t": "t"}),
        # MirrorMaker from a to b, whose own topics have the same names
        (["t"], ["t", "a.t", "a.checkpoints.internal"], {"t": "a.t"}),
        (["t"], ["a.t", "c.t", "a.checkpoints.internal"], {"t": "a.t"}),
        # in both directions
        (["t", "b.t"], ["t", "a.t"], {"t": "a.t", "b.t": "t"}),
        (["t", "b.t", "b.checkpoints.internal"], ["t"], {"b.t": "t"}),
        # of names that stay
        (["t", "b.checkpoints.internal"], ["t", "a.checkpoints.internal"], {"t": "t"}),
        (["__consumer_offsets", "mm2-offsets.a.internal"], ["__consumer_offsets"], {}),
    ],
)
def test_copies_are_found_by_their_names(a, b, expected):
    assert pair_topics(a, b) == expected
    assert pair_topics(b, a) == {other: topic for topic, other in expected.items()}


def test_names_may_be_given():
    a, b = ["orders", "x.orders", "users"], ["orders", "copy", "users"]
    assert pair_topics(a, b, ["orders=copy", "u*"]) == {"orders": "copy", "users": "users"}
    assert pair_topics(["__consumer_offsets"], ["__consumer_offsets"], ["__*"])
    assert pair_topics(["a", "b", "mm2-x.internal"], ["a", "b", "mm2-x.internal"], ["!a"]) == {"b": "b"}
    for wanted in (["order"], ["order=copy"], ["orders=cop"]):
        with pytest.raises(UnknownNameError, match="did you mean"):
            pair_topics(a, b, wanted)


def test_a_topic_that_is_not_there_has_a_suggestion(capsys, log_dir):
    assert main(["diff", "--content", str(log_dir), str(log_dir), "-t", "p-mult"]) == 2
    assert "did you mean 'p-multi'?" in capsys.readouterr().err
    assert main(["diff", "--content", str(log_dir), str(log_dir), "-t", "p-multi=p-multi"]) == 0
