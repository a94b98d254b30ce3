"""The mcp plugin is installed, found by its entry point, and does nothing yet."""

from importlib.metadata import entry_points

import eryxd_mcp
import pluggy


def test_entry_point_names_the_package() -> None:
    """The daemon finds plugins by the group `eryxd`, so that is how this one must be found."""
    (found,) = entry_points(group="eryxd", name="mcp")

    assert found.load() is eryxd_mcp


def test_plugin_contributes_nothing() -> None:
    """The README promises it; the first hook that is added must change the README too."""
    plugins = pluggy.PluginManager("eryxd")
    plugins.register(eryxd_mcp)

    assert plugins.get_hookcallers(eryxd_mcp) == []
