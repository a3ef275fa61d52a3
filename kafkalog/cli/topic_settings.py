"""Topic settings on the command line: an unknown setting is a usage error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kafkalog.cli.exits import UsageError
from kafkalog.cli.scan_options import usage_errors

if TYPE_CHECKING:
    from kafkalog.state.log_config import LogConfig


def check_names(names: Iterable[str]) -> None:
    """Raise UsageError for a name that is not a topic's setting.

    Names in a properties file are not checked: many of them are settings of a broker.
    """
    from kafkalog.state.log_config import is_setting, nearest_setting

    for name in names:
        if not is_setting(name):
            near = nearest_setting(name)
            hint = f"; did you mean {near}?" if near else ""
            raise UsageError(f"{name} is not a topic setting{hint}")


def settings_of(properties: Mapping[str, object]) -> LogConfig:
    """Return settings; an invalid value is a usage error."""
    from kafkalog.state.log_config import LogConfig

    with usage_errors():
        return LogConfig.from_properties(properties)
