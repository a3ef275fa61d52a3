"""Makes `strimzi_crds.json`, schemas of resources of Strimzi that tests need, from a checkout of its repository.

    python tests/support/strimzi_crds.py CHECKOUT

Strimzi is licensed under the Apache License 2.0. Descriptions and the status are left out.
"""

import json
import sys
from pathlib import Path

TARGET = Path(__file__).with_suffix(".json")
SOURCES = ("040-Crd-kafka.yaml", "043-Crd-kafkatopic.yaml", "044-Crd-kafkauser.yaml", "045-Crd-kafkanodepool.yaml")
UNUSED = {
    *("template", "jvmOptions", "resources", "rack", "logging", "metricsConfig", "authorization", "tieredStorage"),
    *("authentication", "configuration", "networkPolicyPeers", "jmxOptions", "quotas", "livenessProbe"),
    *("readinessProbe", "cruiseControl", "kafkaExporter", "entityOperator", "clusterCa", "clientsCa"),
}
"""Large parts of the resources of a cluster and its nodes that no manifest here has: they are left out."""


def schemas(folder):
    """JSON Schemas by kind; fields that a schema does not know are errors, as with kubectl's strict validation."""
    import yaml

    found = {}
    for name in SOURCES:
        spec = yaml.safe_load((Path(folder) / name).read_text())["spec"]
        (version,) = [one for one in spec["versions"] if one["name"] == "v1"]
        schema = version["schema"]["openAPIV3Schema"]
        del schema["properties"]["status"]
        unused = UNUSED if spec["names"]["kind"] in ("Kafka", "KafkaNodePool") else set()
        closed = _closed(schema, unused)
        closed["properties"]["metadata"] = {"type": "object"}
        closed["properties"]["apiVersion"] = {"const": f"{spec['group']}/v1"}
        found[spec["names"]["kind"]] = closed
    return found


def _closed(schema, unused):
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if key != "description" and not key.startswith("x-kubernetes")}
    if "properties" in kept:
        kept["properties"] = {
            name: _closed(one, unused) for name, one in kept["properties"].items() if name not in unused
        }
        kept["additionalProperties"] = False
    if "items" in kept:
        kept["items"] = _closed(kept["items"], unused)
    return kept


if __name__ == "__main__":
    made = schemas(Path(sys.argv[1]) / "packaging" / "install" / "cluster-operator")
    TARGET.write_text(json.dumps({"source": "Strimzi 1.3.0-SNAPSHOT, Apache License 2.0", **made}, indent=1) + "\n")
