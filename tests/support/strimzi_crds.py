"""Makes `strimzi_crds.json`, the schemas of Strimzi's `KafkaTopic` and `KafkaUser`, from a checkout of its repository.

    python tests/support/strimzi_crds.py CHECKOUT

Strimzi is licensed under the Apache License 2.0. Descriptions and the status are left out.
"""

import json
import sys
from pathlib import Path

TARGET = Path(__file__).with_suffix(".json")
SOURCES = ("043-Crd-kafkatopic.yaml", "044-Crd-kafkauser.yaml")


def schemas(folder):
    """JSON Schemas by kind; fields that a schema does not know are errors, as with kubectl's strict validation."""
    import yaml

    found = {}
    for name in SOURCES:
        spec = yaml.safe_load((Path(folder) / name).read_text())["spec"]
        (version,) = [one for one in spec["versions"] if one["name"] == "v1"]
        schema = version["schema"]["openAPIV3Schema"]
        del schema["properties"]["status"]
        closed = _closed(schema)
        closed["properties"]["metadata"] = {"type": "object"}
        closed["properties"]["apiVersion"] = {"const": f"{spec['group']}/v1"}
        found[spec["names"]["kind"]] = closed
    return found


def _closed(schema):
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if key != "description" and not key.startswith("x-kubernetes")}
    if "properties" in kept:
        kept["properties"] = {name: _closed(one) for name, one in kept["properties"].items()}
        kept["additionalProperties"] = False
    if "items" in kept:
        kept["items"] = _closed(kept["items"])
    return kept


if __name__ == "__main__":
    made = schemas(Path(sys.argv[1]) / "packaging" / "install" / "cluster-operator")
    TARGET.write_text(json.dumps({"source": "Strimzi 1.3.0-SNAPSHOT, Apache License 2.0", **made}, indent=1) + "\n")
