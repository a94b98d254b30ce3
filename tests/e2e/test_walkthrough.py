"""The page that writes a plugin, word for word: files saved, commands typed, the plugin really installed."""

import subprocess
import sys
import sysconfig
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.documents import ROOT
from tests.e2e.console import Console
from tests.requirements import requirement


@pytest.fixture
def console(tmp_path: Path) -> Iterator[Console]:
    """A person's terminal, with a virtual environment of its own in which eryx is installed."""
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True, timeout=60)
    scripts = tmp_path / "venv" / "bin"
    (site,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    # What is installed here is installed there as well, without loading it all again.
    (site / "outer.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    (site / "checkout.pth").write_text(f"{ROOT}\n")
    for name, module in (("eryx", "eryxd.cli.app"), ("eryxd", "eryxd.daemon.app")):
        script = scripts / name
        script.write_text(
            textwrap.dedent(f"""\
                #!{scripts / "python"}
                import sys
                from {module} import main
                sys.exit(main())
                """)
        )
        script.chmod(0o755)
    folder = tmp_path / "web"
    folder.mkdir()
    opened = Console(folder, scripts)
    yield opened
    opened.close()


@requirement("PLG-8")
@pytest.mark.timeout(180)
def test_the_walkthrough_runs_as_written(console: Console) -> None:
    """From an empty folder to a call that is approved, and back."""
    assert console.play(ROOT / "docs/writing-a-plugin.md") > 10
