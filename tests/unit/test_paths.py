"""Where files are: eryxd.paths against the XDG rules, platformdirs and the modes of real folders."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from eryxd import paths
from tests.requirements import requirement

ASK_PLATFORMDIRS = """
import json, platformdirs
print(json.dumps([platformdirs.user_config_dir("eryx"), platformdirs.user_state_dir("eryx")]))
"""

ENVIRONMENTS: dict[str, dict[str, str]] = {
    "home only": {"HOME": "/home/ann"},
    "home with a slash at its end": {"HOME": "/home/ann/"},
    "home unset": {},
    "home empty": {"HOME": ""},
    "home relative": {"HOME": "ann"},
    "both set": {"HOME": "/home/ann", "XDG_CONFIG_HOME": "/c", "XDG_STATE_HOME": "/s"},
    "set with a slash at the end": {"HOME": "/home/ann", "XDG_CONFIG_HOME": "/c/", "XDG_STATE_HOME": "/s/"},
    "set and empty": {"HOME": "/home/ann", "XDG_CONFIG_HOME": "", "XDG_STATE_HOME": ""},
    "relative is ignored": {"HOME": "/home/ann", "XDG_CONFIG_HOME": "c", "XDG_STATE_HOME": "./s"},
    "one of two": {"HOME": "/home/ann", "XDG_STATE_HOME": "/s"},
    "a tilde is no home": {"HOME": "/home/ann", "XDG_CONFIG_HOME": "~/c"},
    "spaces and more": {"HOME": "/home/änn b", "XDG_CONFIG_HOME": "/c d"},
}


@requirement("CLI-21")
@pytest.mark.parametrize("environ", ENVIRONMENTS.values(), ids=ENVIRONMENTS.keys())
def test_config_and_state_are_where_platformdirs_puts_them(environ: dict[str, str]) -> None:
    """The two never part, or half of eryx would look in the wrong place."""
    clean = {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUTF8": "1"}
    asked = subprocess.run(
        [sys.executable, "-c", ASK_PLATFORMDIRS], env=clean | environ, capture_output=True, check=True, timeout=30
    )

    assert [paths.config_dir(environ), paths.state_dir(environ)] == json.loads(asked.stdout)


@requirement("CLI-21")
def test_eryx_home_moves_everything() -> None:
    """Also what the XDG variables say otherwise."""
    environ = {"ERYX_HOME": "/e", "HOME": "/h", "XDG_CONFIG_HOME": "/c", "XDG_RUNTIME_DIR": "/r"}

    assert {
        "config": paths.config_dir(environ),
        "state": paths.state_dir(environ),
        "runtime": paths.runtime_dir(environ),
        "socket": paths.socket_path(environ),
        "plans": paths.plans_dir(environ),
        "scratch": paths.scratch_dir(environ),
        "log": paths.log_path(environ),
    } == {
        "config": "/e/config",
        "state": "/e/state",
        "runtime": "/e/run",
        "socket": "/e/run/eryxd.sock",
        "plans": "/e/config/plans",
        "scratch": "/e/state/scratch",
        "log": "/e/state/eryxd.log",
    }


@requirement("CLI-21")
def test_relative_eryx_home_counts_from_the_working_directory() -> None:
    """Ignoring it would use the real sessions of someone who asked to stay apart."""
    assert paths.state_dir({"ERYX_HOME": "here", "HOME": "/h"}) == f"{Path.cwd()}/here/state"


def test_empty_eryx_home_is_unset() -> None:
    """As for the XDG variables."""
    assert paths.state_dir({"ERYX_HOME": "", "HOME": "/h"}) == "/h/.local/state/eryx"


@pytest.fixture
def folder(tmp_path: Path) -> Callable[[str, int], str]:
    """Make a folder below the test's own, with a mode, and return its path."""

    def make(name: str, mode: int) -> str:
        made = tmp_path / name
        made.mkdir(parents=True, exist_ok=True)
        made.chmod(mode)
        return str(made)

    return make


MakeFolder = Callable[[str, int], str]


def runtime(base: str, run_user: str = "/nowhere") -> str:
    return paths.runtime_dir({"HOME": "/h", "XDG_RUNTIME_DIR": base}, run_user=run_user)


LAST_RESORT = "/h/.local/state/eryx/run"


@requirement("CLI-21")
def test_private_runtime_base_is_used_before_our_folder_exists(folder: MakeFolder) -> None:
    """The first start makes the folder."""
    base = folder("base", 0o700)

    assert runtime(base) == f"{base}/eryx"


@requirement("CLI-21")
def test_private_folder_of_ours_is_used_whatever_holds_it(folder: MakeFolder) -> None:
    """The folder itself is the lock."""
    base = folder("base", 0o755)
    folder("base/eryx", 0o700)

    assert runtime(base) == f"{base}/eryx"


@requirement("CLI-21")
@pytest.mark.parametrize("mode", [0o750, 0o705, 0o777, 0o500])
def test_folder_with_another_mode_is_passed_over(folder: MakeFolder, mode: int) -> None:
    """Private is 0700 and nothing else."""
    base = folder("base", 0o700)
    folder("base/eryx", mode)

    assert runtime(base) == LAST_RESORT


@requirement("CLI-21")
@pytest.mark.parametrize("mode", [0o755, 0o1777])
def test_open_base_without_our_folder_is_passed_over(folder: MakeFolder, mode: int) -> None:
    """Anyone could have made the folder in it a moment later."""
    assert runtime(folder("base", mode)) == LAST_RESORT


@requirement("CLI-21")
def test_link_in_place_of_our_folder_is_passed_over(folder: MakeFolder) -> None:
    """A link says where somebody wants the socket to be."""
    base, elsewhere = folder("base", 0o700), folder("elsewhere", 0o700)
    Path(base, "eryx").symlink_to(elsewhere)

    assert runtime(base) == LAST_RESORT


@requirement("CLI-21")
def test_file_in_place_of_our_folder_is_passed_over(folder: MakeFolder) -> None:
    """Nothing can be bound in a file."""
    base = folder("base", 0o700)
    Path(base, "eryx").touch()

    assert runtime(base) == LAST_RESORT


@requirement("CLI-21")
@pytest.mark.parametrize("base", ["", "relative", "/nonexistent/base", "."])
def test_unusable_runtime_variable_falls_back_to_the_users_folder(folder: MakeFolder, base: str) -> None:
    """Cron and `su` leave XDG_RUNTIME_DIR unset; systemd's folder of the user is there all the same."""
    users = folder("user", 0o755)
    mine = folder(f"user/{os.getuid()}", 0o700)

    assert runtime(base, run_user=users) == f"{mine}/eryx"


@requirement("CLI-21")
def test_folder_of_another_user_is_passed_over() -> None:
    """The root folder stands for it: root's and open, so private to nobody."""
    assert not paths.is_private_dir("/")


@requirement("CLI-21")
def test_inherited_group_bit_does_not_make_a_folder_less_private(folder: MakeFolder) -> None:
    """A folder made in a setgid one inherits that bit; it opens nothing."""
    made = folder("base", 0o2700)

    assert stat.S_IMODE(Path(made).lstat().st_mode) & 0o777 == 0o700
    assert paths.is_private_dir(made)
