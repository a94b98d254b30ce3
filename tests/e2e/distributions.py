"""Plugins as installed distributions: a module and its metadata in a folder on the path."""

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.daemon_process import ROOT, DaemonProcess

GOOD = """
from eryxd.plugin import hookimpl
from eryxd.plugin.types import *
from eryxd.domain.ids import Record, ToolId


class Server(Record, frozen=True, kw_only=True):
    tools: tuple[str, ...] | None = None
    token: Secret | None = None


class Provider:
    descriptor = ProviderDescriptor(name="NAME", label="The NAME", kind=ToolKind.MCP, record=RECORD)

    def problems(self, entry, others):
        return ["record.tools: is empty"] if entry.record.tools == () else []

    def fingerprint(self, entry):
        return ""

    def declared(self, entry):
        names = ("NAME_say",) if entry is None else entry.record.tools
        return None if names is None else [ProvidedTool(id=ToolId(name), description="Says.") for name in names]

    async def tools(self, entry, processes):
        return []

    async def call(self, entry, call, processes):
        token = "" if entry is None else entry.record.token or ""
        return ToolOutcome(ok=True, text=f"{call.tool_id} said {call.arguments} {len(token)}")


@hookimpl
def eryxd_tool_providers():
    return [Provider()]
"""


def good(name: str, record: str = "None") -> str:
    """Return a plugin with one provider of that name."""
    return GOOD.replace("NAME", name).replace("RECORD", record)


@contextmanager
def provided(folder: Path) -> Iterator[DaemonProcess]:
    """Start a daemon with a provider `say` that takes entries, and has one: `mine`, which offers `say_hello`."""
    site = Site(folder / "site")
    site.install("say", good("say", "Server"))
    with DaemonProcess(folder, environ=site.environ) as daemon:
        daemon.start()
        client = daemon.client()
        client.call("plugins.enable", name="say")
        client.call("providers.save", provider="say", id="mine", record={"tools": ["say_hello"]})
        yield daemon


class Site:
    """A folder of installed distributions."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)

    def install(self, name: str, code: str, distribution: str = "", version: str = "1.0") -> None:
        """Install a distribution with one plugin."""
        distribution = distribution or f"eryx-{name}"
        module = f"{distribution}_{name}".replace("-", "_")
        (self.folder / f"{module}.py").write_text(textwrap.dedent(code))
        info = self.folder / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(f"[eryxd]\n{name} = {module}\n")

    def uninstall(self, name: str) -> None:
        """Take a distribution away."""
        for path in self.folder.glob(f"eryx_{name}*"):
            if path.is_dir():
                for inner in path.iterdir():
                    inner.unlink()
                path.rmdir()
            else:
                path.unlink()

    @property
    def environ(self) -> dict[str, str]:
        """What finds them."""
        return {"PYTHONPATH": f"{ROOT}:{self.folder}"}
