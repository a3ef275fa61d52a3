"""What is never shown of a cluster's metadata: values of settings that may be passwords, and keys of SCRAM users."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from kafkalog.protocol.definitions import messages

HIDDEN: Final = "[hidden]"
"""What stands for the value of a setting that may be a secret, as in Kafka."""
_SECRET: Final = re.compile(r"password|secret|credential|jaas\.config|keystore\.key|certificate")


def shown_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings, with `HIDDEN` for values that may be secrets."""
    return {name: HIDDEN if _SECRET.search(name) else value for name, value in settings.items()}


def without_secrets(kind: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a metadata record without its secrets. Source: RecordRedactor, Kafka 4.3.

    All fields of bytes are left out: the salt and the keys of a SCRAM user are the only ones.
    """
    if kind == "Config" and fields["value"] is not None:
        return {**fields, "value": shown_settings({fields["name"]: fields["value"]})[fields["name"]]}
    of_bytes = {field.name for field in messages()[f"{kind}Record"].fields if field.type == "bytes"}
    return {name: value for name, value in fields.items() if name not in of_bytes}
