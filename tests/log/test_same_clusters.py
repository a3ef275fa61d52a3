"""Log dirs with topics of one id are of one cluster, whatever their cluster ids are."""

from itertools import islice, permutations

from metadata_logs import topic_id

from kafkalog.log.same_clusters import same_clusters


def test_a_log_dir_unites_all_those_that_it_has_a_topic_of(tmp_path):
    topics = {"a": [1], "b": [2], "c": [1, 2], "d": [3], "empty-1": [], "empty-2": []}
    for name, numbers in topics.items():
        for number in numbers:
            partition = tmp_path / name / f"t{number}-0"
            partition.mkdir(parents=True)
            (partition / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id(number)}\n")
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "meta.properties").write_text(f"version=1\nnode.id=1\ncluster.id={name}\n")
    for order in islice(permutations(topics), 0, None, 7):
        found = [[one.name for one in group] for group in same_clusters(tmp_path / name for name in order)]
        # each in the order of the call
        wanted = [[name for name in order if name in group] for group in ("abc", "d", ["empty-1"], ["empty-2"])]
        assert sorted(found) == sorted(wanted)
