"""How plugins stand.

Source: architecture 4.
"""

from enum import StrEnum


class PluginStatus(StrEnum):
    """How a plugin stands: what a person decided, or what went wrong."""

    NEW = "new"
    ENABLED = "enabled"
    DISABLED = "disabled"
    LOAD_ERROR = "load-error"
    CONFIG_ERROR = "config-error"
    FAULTED = "faulted"
