"""Plugins as people install them: new until enabled, and whatever one does, the others and the daemon work."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eryxd.client.client import Client, RemoteError
from tests.e2e.daemon_process import DaemonProcess
from tests.e2e.distributions import Site, good
from tests.e2e.stage import Watch
from tests.fakes import eryx
from tests.requirements import requirement

HEAD = "from eryxd.plugin import hookimpl\nfrom eryxd.plugin.types import *\n"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "site")


@pytest.fixture
def served(tmp_path: Path, site: Site) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path, environ=site.environ) as daemon:
        yield daemon


def plugins(client: Client) -> dict[str, Any]:
    """Return every plugin that is not ours, by name."""
    return {one["name"]: one for one in client.call("plugins.list")["plugins"] if one["distribution"] not in OURS}


OURS = {"eryxd-mcp", "eryxd-lsp", "eryxd-copilot"}


def tools(client: Client) -> set[str]:
    return {one["id"] for one in client.call("tools.list")["tools"] if one["kind"] != "builtin"}


def run(daemon: DaemonProcess, *words: str) -> subprocess.CompletedProcess[str]:
    """Type a command."""
    return subprocess.run(eryx(*words), env=daemon.environ, capture_output=True, text=True, timeout=60, check=False)


MARK = """
import pathlib, os
pathlib.Path(os.environ["ERYX_HOME"], "imported").write_text("yes")
"""


@requirement("PLG-1")
def test_a_plugin_of_others_is_listed_and_not_imported_until_it_is_enabled(site: Site, served: DaemonProcess) -> None:
    """Enabled once, it is used at every start, as long as it comes from the same distribution."""
    site.install("say", good("say") + MARK)
    served.start()
    client = served.client()
    assert plugins(client)["say"]["status"] == "new"
    assert plugins(client)["say"]["next"] == "eryx plugins enable say"
    assert not (served.home / "imported").exists()

    with Watch(client) as watch:
        assert run(served, "plugins", "enable", "say").returncode == 0
        watch.until(lambda event: event["type"] == "catalog-changed")
    assert plugins(client)["say"]["provides"] == ["tools: say"]
    assert tools(client) == {"say_say"}
    served.stop()
    served.start()
    assert tools(served.client()) == {"say_say"}
    served.stop()

    site.uninstall("say")
    site.install("say", good("say"), distribution="somebody-else")
    served.start()
    assert plugins(served.client())["say"]["status"] == "new"
    assert tools(served.client()) == {"say_say"}
    (source,) = [one for one in served.client().call("tools.list")["sources"] if one["id"] == "say"]
    assert source["status"] == "failed"


HOSTILE = {
    "import error": ("import no_such_module\n", "load-error", "no_such_module"),
    "exits": ("raise SystemExit(3)\n", "load-error", "SystemExit"),
    "interrupts": ("raise KeyboardInterrupt\n", "load-error", "KeyboardInterrupt"),
    "misspelt hook": (
        HEAD + "@hookimpl\ndef eryxd_tool_provider():\n    return []\n",
        "load-error",
        "eryxd_tool_provider",
    ),
    "wrong type": (HEAD + "@hookimpl\ndef eryxd_tool_providers():\n    return 7\n", "faulted", "int"),
    "no provider": (HEAD + "@hookimpl\ndef eryxd_tool_providers():\n    return ['x']\n", "faulted", "descriptor"),
    "late generator": (
        HEAD + "@hookimpl\ndef eryxd_tool_providers():\n    yield from ()\n    raise ValueError('too late')\n",
        "faulted",
        "too late",
    ),
    "coroutine": (HEAD + "@hookimpl\nasync def eryxd_tool_providers():\n    return []\n", "faulted", "coroutine"),
    "exits in a hook": (HEAD + "@hookimpl\ndef eryxd_backends():\n    raise SystemExit\n", "faulted", "SystemExit"),
    "hangs": (HEAD + "import time\n@hookimpl\ndef eryxd_observers():\n    time.sleep(600)\n", "faulted", "within 5 s"),
    "name of ours": (good("builtin"), "faulted", "builtin"),
    "same provider": (good("aaa_fine"), "load-error", "aaa_fine"),
    "same backend": (
        HEAD
        + "class B:\n    descriptor = BackendDescriptor(name='replay', label='x')\n"
        + "    async def describe(self): ...\n    async def prepare(self, agent): ...\n"
        + "    async def run_turn(self, turn, gate): ...\n"
        + "@hookimpl\ndef eryxd_backends():\n    return [B()]\n",
        "load-error",
        "replay",
    ),
    "not async": (good("late").replace("async def tools", "def tools"), "faulted", "async def"),
}


@requirement("PLG-2")
@pytest.mark.parametrize(("code", "status", "why"), HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_plugin_costs_nobody_anything(
    site: Site, served: DaemonProcess, code: str, status: str, why: str
) -> None:
    """It is named with its distribution and the cure; the others, the daemon and the command line work."""
    site.install("aaa_fine", good("aaa_fine"))
    site.install("bad", code)
    served.start()
    client = served.client()
    client.call("plugins.enable", name="aaa_fine")
    changed = client.call("plugins.enable", name="bad")["plugin"]

    assert (changed["status"], why in changed["problem"]) == (status, True), changed
    assert (changed["distribution"], changed["version"]) == ("eryx-bad", "1.0")
    assert "eryx plugins disable bad" in changed["next"]
    assert plugins(client)["aaa_fine"]["status"] == "enabled"
    listed = run(served, "plugins", "list")
    assert (listed.returncode, "eryx-bad 1.0" in listed.stdout) == (0, True)
    assert any("eryx-bad" in warning for warning in client.call("daemon.status")["warnings"])
    served.stop()
    served.start()
    assert plugins(served.client())["bad"]["status"] == status
    assert tools(served.client()) == {"aaa_fine_say"}
    assert run(served, "plugins", "disable", "bad").returncode == 0


@requirement("PLG-3")
def test_two_distributions_with_one_plugin_name_are_both_named_and_neither_loads(
    site: Site, served: DaemonProcess
) -> None:
    site.install("say", good("say"))
    site.install("say", good("say"), distribution="other-say")
    served.start()

    told = plugins(served.client())["say"]
    assert told["status"] == "load-error"
    assert "eryx-say" in told["problem"]
    assert "other-say" in told["problem"]


@requirement("PLG-4")
def test_settings_of_a_plugin_are_held_against_its_own_type(site: Site, served: DaemonProcess) -> None:
    """What does not fit names the key and the file; mended, enabling it again is enough."""
    code = good("say") + (
        "\nclass Settings(Record, frozen=True, kw_only=True):\n    loud: bool = False\n"
        "\n@hookimpl\ndef eryxd_settings():\n    return Settings\n"
    )
    site.install("say", code)
    served.config.mkdir(parents=True)
    (served.config / "config.toml").write_text("[plugins.say]\nlowd = true\n[plugins.nobody]\nx = 1\n")
    served.start()
    client = served.client()
    changed = client.call("plugins.enable", name="say")["plugin"]

    assert changed["status"] == "config-error"
    assert "[plugins.say] in config.toml" in changed["problem"]
    assert "lowd" in changed["problem"]
    assert any("[plugins.nobody]" in warning for warning in client.call("daemon.status")["warnings"])
    served.stop()
    (served.config / "config.toml").write_text("[plugins.say]\nloud = true\n")
    served.start()
    assert plugins(served.client())["say"]["status"] == "enabled"


OBSERVER = (
    HEAD
    + """
import json, os, pathlib
seen = pathlib.Path(os.environ["ERYX_HOME"], "seen")


class Mean:
    def saw(self, event):
        with seen.open("a") as file:
            file.write(json.dumps(event["type"]) + "\\n")
        event.clear()
        if "fails" in os.environ.get("ERYX_HOME", "") or "pattern_id" in event:
            raise RuntimeError
        BODY


@hookimpl
def eryxd_observers(context):
    assert os.path.isdir(context.state_dir)
    return [Mean()]
"""
)


@requirement("PLG-5")
@pytest.mark.parametrize("body", ["pass", "__import__('time').sleep(600)", "raise SystemExit"])
def test_an_observer_sees_and_never_alters(site: Site, served: DaemonProcess, body: str) -> None:
    """What it does to an event, and how long it takes, is its own affair; one that keeps failing is faulted."""
    site.install("look", OBSERVER.replace("BODY", body))
    served.start()
    client = served.client()
    client.call("plugins.enable", name="look")
    with Watch(client) as watch:
        for number in range(5):
            client.call("patterns.copy", pattern_id="single", name=f"Copy {number}")
            heard = watch.until(lambda event: event["type"] == "pattern-saved")
            assert heard["pattern"]["name"] == f"Copy {number}"
        if "Exit" in body:
            told = [event for event in watch.heard if event["type"] == "plugin-status"]
            heard = told[0] if told else watch.until(lambda event: event["type"] == "plugin-status")
            assert (heard["plugin"]["name"], heard["plugin"]["status"]) == ("look", "faulted")
    assert client.call("patterns.list")["patterns"]
    assert json.loads((served.home / "seen").read_text().splitlines()[0])
    assert served.stop() == 0


COMMANDS = HEAD + "import typer\n\ndef eryxd_commands():\n    GROUP\n"


@requirement("PLG-6")
def test_a_command_group_is_found_by_its_plugins_name(site: Site, served: DaemonProcess) -> None:
    """And by `--help`; what is not enabled is not imported."""
    group = """
from eryxd.cli import kit

app = kit.group("Says.")

@app.command("hello")
def hello() -> None:
    "Say hello."
    print("hello")

@hookimpl
def eryxd_commands():
    return app
"""
    site.install("say", good("say") + group)
    served.start()
    refused = run(served, "say", "hello")
    assert (refused.returncode, "eryx plugins enable say" in refused.stderr) == (65, True), refused

    served.client().call("plugins.enable", name="say")
    assert run(served, "say", "hello").stdout == "hello\n"
    assert "say" in run(served, "--help").stdout
    wrong = run(served, "saz", "hello")
    assert (wrong.returncode, wrong.stderr.count("Traceback")) == (2, 0)


BROKEN = {
    "import": "raise RuntimeError('no')\n",
    "type": HEAD + "@hookimpl\ndef eryxd_commands():\n    return 7\n",
    "exit": HEAD + "@hookimpl\ndef eryxd_commands():\n    raise SystemExit(0)\n",
}


@requirement("PLG-6")
@pytest.mark.parametrize("code", BROKEN.values(), ids=BROKEN.keys())
def test_a_command_group_that_breaks_is_one_line_and_an_exit_status(
    site: Site, served: DaemonProcess, code: str
) -> None:
    site.install("bad", code)
    served.start()
    served.client().call("plugins.enable", name="bad")
    done = run(served, "bad", "hello")

    assert done.returncode not in (0, 1)
    assert "eryx-bad 1.0" in done.stderr
    assert "Traceback" not in done.stderr
    assert run(served, "status").returncode == 0


@requirement("PLG-7", "PRN-3")
def test_what_is_not_installed_any_more_keeps_its_tools_until_it_is_forgotten(
    site: Site, served: DaemonProcess
) -> None:
    """Forgetting is a withdrawal, disabling too; failing is not."""
    site.install("say", good("say"))
    served.start()
    client = served.client()
    with Watch(client) as watch:
        client.call("plugins.enable", name="say")
        watch.until(lambda event: event["type"] == "catalog-changed")
    copy = client.call("patterns.copy", pattern_id="single")["pattern"]
    draft = {key: copy[key] for key in ("id", "name", "mode", "agents", "revision")}
    rules = {"rules": [{"kind": "tool-call"}], "auto_approved_tool_names": ["say_say"]}
    client.call("patterns.save", pattern={**draft, "approval_policy": rules})
    served.stop()
    site.uninstall("say")
    served.start()

    client = served.client()
    assert plugins(client)["say"]["problem"] == "it is not installed any more"
    assert tools(client) == {"say_say"}
    assert client.call("tools.stale")["stale"] == []
    forgotten = client.call("plugins.forget", name="say")
    assert (forgotten["pruned"], "plugin" in forgotten) == (["say_say"], False)
    assert tools(client) == set()
    kept = client.call("patterns.get", pattern_id=copy["id"])["pattern"]["approval_policy"]
    assert "auto_approved_tool_names" not in kept
    with pytest.raises(RemoteError, match="No plugin"):
        client.call("plugins.forget", name="say")


@requirement("PLG-1")
def test_a_file_of_decisions_that_cannot_be_used_enables_nobody(site: Site, served: DaemonProcess) -> None:
    site.install("say", good("say"))
    served.start()
    served.client().call("plugins.enable", name="say")
    served.stop()
    (served.config / "plugins.toml").write_text("[plugins.say]\nenabled = 7\n")
    served.start()

    assert plugins(served.client())["say"]["status"] == "new"
    assert any("plugins.toml" in warning for warning in served.client().call("daemon.status")["warnings"])
    refused = run(served, "plugins", "enable", "say")
    assert (refused.returncode, "plugins.toml" in refused.stderr) == (65, True)
