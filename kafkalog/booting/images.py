"""Images of containers that run a broker: where their log dirs are, which user they run as, and how they start.

Their entry points format a log dir unless it is formatted, and take the voters from the configuration. So the quorum of
a directory for an image is static: its metadata log has no voters.

Source: kafka_run.sh and KafkaBrokerConfigurationBuilder, Strimzi 1.2.
docker/jvm/Dockerfile, docker/resources/common-scripts/configure, apache/kafka: chown appuser:root /var/lib/kafka.
bitnami/kafka/4.0/debian-12, bitnami/containers at b3477708: KAFKA_DATA_DIR in kafka-env.sh, USER 1001 in the
Dockerfile, and kafka_kraft_storage_initialize in libkafka.sh, which takes the cluster id from meta.properties.
kafka/Dockerfile.ubi9, configure and ensure, confluentinc/kafka-images at 04fffe06: KAFKA_LOG_DIRS, appuser:root.
base/Dockerfile.ubi9, confluentinc/common-docker at 024b7a9c: appuser is the first user, so 1000.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kafkalog.survey.next_steps import NextStep

MANIFESTS: Final = "strimzi.yaml"
"""The file with the resources for Strimzi's operator."""
CLUSTER: Final = "my-cluster"
"""The name of the `Kafka` resource in it."""
LOOPBACK: Final = "127.0.0.1"
"""The host of nodes without one."""
_PROPERTIES_AT: Final = "/etc/kafka-boot"
"""Where the guide mounts the directory with `server.properties`."""


@dataclass(frozen=True, slots=True)
class Image:
    """An image of a broker."""

    name: str
    log_dirs: str
    """The log dir in a container, with ``{}`` for the id of the node; its last part is the name in the output."""
    owner: int
    """The user id of its process; the group is 0."""
    start: str = ""
    """The program that starts a broker with a `server.properties`; "" if an operator does."""
    place_of_id: str = ""
    """Where it takes the cluster id from, other than from the log dir."""

    def check_hosts(self, hosts: Sequence[str]) -> None:
        """Raise ValueError if several containers would each look for all of them at their own address.

        An operator makes the addresses itself.
        """
        if self.start and hosts.count(LOOPBACK) > 1:
            example = ",".join(f"{number}@kafka-{number}.kafka:9092:9093" for number in range(len(hosts)))
            raise ValueError(
                f"{len(hosts)} containers do not find each other at {LOOPBACK}: name the hosts with --nodes (nodes=),"
                f" such as {example} for a StatefulSet and a headless service that are both named kafka"
            )

    def steps(self, path: str, cluster_id: str, *, is_owner: bool) -> Iterator[NextStep]:
        """The commands that start the nodes of a boot in this image; `is_owner` says whether its user owns them."""
        if not is_owner:
            yield NextStep(("chown", "-R", f"{self.owner}:0", path), "gives the files to the user of the image")
        if self.start:
            yield NextStep((self.start, f"{_PROPERTIES_AT}/server.properties"), "starts a broker, in each container")
            return
        status = json.dumps({"status": {"clusterId": cluster_id}}, separators=(",", ":"))
        patch = ("kubectl", "patch", "kafka", CLUSTER, "--subresource", "status", "--type", "merge", "--patch", status)
        yield NextStep(("kubectl", "apply", "-f", f"{path}/{MANIFESTS}"), "makes the node pool and the paused cluster")
        yield NextStep(patch, "names the cluster id to the operator, which makes a new one otherwise")
        resume = ("kubectl", "annotate", "kafka", CLUSTER, "strimzi.io/pause-reconciliation-")
        yield NextStep(resume, "lets the operator start the brokers")

    def lines(self, cluster_id: str, log_dirs: Mapping[str, str]) -> Iterator[str]:
        """Sentences about where the log dirs belong; `log_dirs` has the path in a container by that in the output."""
        for here, there in log_dirs.items():
            yield f"  {here}: mount or move it to {there}"
        yield f"  owner {self.owner}:0, cluster id {cluster_id}{self.place_of_id and f' ({self.place_of_id})'}"


_KAFKA: Final = "/var/lib/kafka/data"
IMAGES: Final[Mapping[str, Image]] = {
    image.name: image
    for image in (
        Image("strimzi", f"{_KAFKA}-0/kafka-log{{}}", 1001, place_of_id="status.clusterId of the Kafka resource"),
        Image("apache", _KAFKA, 1000, "/opt/kafka/bin/kafka-server-start.sh", "CLUSTER_ID in the environment"),
        Image("bitnami", "/bitnami/kafka/data", 1001, "/opt/bitnami/kafka/bin/kafka-server-start.sh"),
        Image("confluent", _KAFKA, 1000, "/usr/bin/kafka-server-start", "CLUSTER_ID in the environment"),
    )
}
