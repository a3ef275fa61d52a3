"""Topic settings on the command line: an unknown setting is a usage error, a questionable value is a note."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kafkalog.cli.exits import UsageError
from kafkalog.cli.scan_options import usage_errors

if TYPE_CHECKING:
    from kafkalog.cli.console import Console
    from kafkalog.state.log_config import LogConfig


def check_names(names: Iterable[str]) -> None:
    """Raise UsageError for a name that is not a topic's setting.

    Names in a properties file are not checked: many of them are settings of a broker.
    """
    from kafkalog.state.log_config import is_setting, nearest_setting

    for name in names:
        if not is_setting(name):
            near = nearest_setting(name)
            hint = f"; is {near} meant?" if near else ""
            raise UsageError(f"{name} is not a setting of a topic{hint}")


@contextlib.contextmanager
def noting(console: Console) -> Iterator[None]:
    """Print warnings about settings as notes, as soon as they are raised."""
    from kafkalog.errors import ConfigWarning

    with warnings.catch_warnings():
        shown = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if issubclass(category, ConfigWarning):
                console.note(str(message))
            else:
                shown(message, category, *where, **more)

        warnings.simplefilter("always", ConfigWarning)
        warnings.showwarning = show
        yield


def settings_of(properties: Mapping[str, object], console: Console) -> LogConfig:
    """Return settings; print warnings about them as notes."""
    from kafkalog.state.log_config import LogConfig

    with noting(console), usage_errors():
        return LogConfig.from_properties(properties)
