"""Files of the configuration, as people and their editors change them: taken over whole, and nothing is lost."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eryxd.client.client import Client, RemoteError
from tests.e2e.daemon_process import DaemonProcess
from tests.e2e.distributions import provided
from tests.e2e.stage import Watch
from tests.fakes import eryx
from tests.requirements import requirement

REVIEW = """
[patterns.review]
name = "Review"
mode = "single"
agents = [{ id = "a", name = "Reviewer" }]

[patterns.review.approval_policy]
rules = [{ kind = "tool-call" }]
auto_approved_tool_names = ["view"]
"""

ENTRY = """
[providers.say.team]
name = "Team"

[providers.say.team.record]
tools = ["say_team"]
token = "t0psecret"
"""


class Files:
    """A running daemon, its folder of files, and somebody who hears what it makes of them."""

    def __init__(self, daemon: DaemonProcess, client: Client, watch: Watch) -> None:
        self.daemon = daemon
        self.client = client
        self.watch = watch
        self.folder = daemon.config / "workspace.d"

    def writes(self, name: str, text: str) -> Path:
        """Save a file as an editor does: another one first, then renamed."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        fresh = self.folder / f".{name}.swp"
        fresh.write_text(text)
        os.replace(fresh, self.folder / name)
        return self.folder / name

    def hears(self, kind: str = "config-reloaded") -> Any:
        """Wait for what the daemon says of a change."""
        return self.watch.until(lambda event: event["type"] == kind)

    def patterns(self) -> dict[str, Any]:
        """Return the patterns by id."""
        return {one["id"]: one for one in self.client.call("patterns.list")["patterns"]}

    def warnings(self) -> str:
        """Return what the status warns of."""
        return "\n".join(self.client.call("daemon.status")["warnings"])

    def auto(self, pattern: str = "review") -> set[str]:
        """Return which tools would run by themselves."""
        rows = self.client.call("tools.explain", pattern_id=pattern)["rows"]
        return {row["tool_id"] for row in rows if row["decision"]["verdict"] == "auto"}


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Files]:
    with provided(tmp_path) as daemon:
        client = daemon.client()
        with Watch(client) as watch:
            yield Files(daemon, client, watch)


@requirement("FIL-1", "FIL-3")
def test_a_file_defines_a_pattern_and_is_where_it_is_changed(files: Files) -> None:
    path = files.writes("review.toml", REVIEW)
    files.hears()
    review = files.patterns()["review"]

    assert review["origin"] == {"file": str(path), "line": 2}
    assert files.auto() == {"view"}
    draft = {key: review[key] for key in ("id", "name", "mode", "agents", "revision")}
    calls: list[tuple[str, dict[str, Any]]] = [
        ("patterns.save", {"pattern": draft}),
        ("patterns.delete", {"pattern_id": "review"}),
    ]
    for method, params in calls:
        with pytest.raises(RemoteError, match="line 2") as caught:
            files.client.call(method, **params)
        assert (caught.value.code, caught.value.data["file"]) == ("read_only", str(path))
    files.client.call("patterns.favorite", pattern_id="review", is_favorite=True)

    files.writes("review.toml", REVIEW.replace("Reviewer", "Critic"))
    files.hears()
    changed = files.patterns()["review"]
    assert (changed["agents"][0]["name"], changed["is_favorite"]) == ("Critic", True)
    assert changed["revision"] != review["revision"]
    shown = subprocess.run(
        eryx("patterns", "show", "review"),
        env=files.daemon.environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert f"{path}:2" in shown.stdout


@requirement("FIL-4", "POL-11")
def test_a_file_renamed_away_and_back_loses_nothing(files: Files) -> None:
    """Not the pattern, not who is trusted with its list."""
    path = files.writes("review.toml", REVIEW)
    files.hears()
    os.rename(path, path.with_suffix(".off"))
    files.hears()
    assert "review" not in files.patterns()

    os.rename(path.with_suffix(".off"), path)
    files.hears()
    assert files.auto() == {"view"}


@requirement("FIL-4")
def test_a_file_that_is_half_written_keeps_the_last_good_one(files: Files) -> None:
    """Also over a restart; and what it says of it names the file."""
    path = files.writes("review.toml", REVIEW)
    files.hears()
    before = files.patterns()["review"]
    path.write_text(REVIEW[:60])
    rejected = files.hears("config-rejected")["rejected"]
    assert str(path) in rejected["problems"][0]
    assert files.patterns()["review"] == before
    assert str(path) in files.warnings()
    done = subprocess.run(
        eryx("daemon", "reload"), env=files.daemon.environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, str(path) in done.stderr) == (65, True)

    files.daemon.stop()
    files.daemon.start()
    client = files.daemon.client()
    assert before == client.call("patterns.get", pattern_id="review")["pattern"]
    with Watch(client) as watch:
        path.write_text(REVIEW)
        watch.until(lambda event: event["type"] == "config-reloaded")
    assert str(path) not in "\n".join(client.call("daemon.status")["warnings"])


@requirement("FIL-2")
def test_a_file_stands_in_place_of_a_stored_record_until_it_goes(files: Files) -> None:
    """The built-in one too; said in the status."""
    path = files.writes("single.toml", REVIEW.replace("patterns.review", "patterns.single"))
    files.hears()
    assert files.patterns()["single"]["name"] == "Review"
    assert "'single' stands in place of the built-in one" in files.warnings()

    path.unlink()
    files.hears()
    assert files.patterns()["single"]["is_builtin"] is True
    assert "origin" not in files.patterns()["single"]


@requirement("FIL-2")
def test_what_is_defined_twice_is_neither_and_both_are_named(files: Files) -> None:
    first = files.writes("a.toml", REVIEW)
    files.hears()
    second = files.writes("b.toml", REVIEW)
    warned = files.hears()["reloaded"]["warnings"]

    assert [str(first) in one and str(second) in one for one in warned] == [True]
    assert "review" not in files.patterns()
    second.unlink()
    files.hears()
    assert files.auto() == {"view"}


@requirement("PRN-2")
def test_an_id_that_nobody_offers_is_a_warning_with_its_file(files: Files) -> None:
    path = files.writes("review.toml", REVIEW.replace('["view"]', '["view", "veiw"]'))
    (warning,) = files.hears()["reloaded"]["warnings"]

    assert str(path) in warning
    assert "'veiw'" in warning
    assert files.auto() == {"view"}
    assert path.read_text().count("veiw") == 1


@requirement("PRN-3", "SEC-1")
def test_an_entry_that_vanishes_from_its_file_keeps_its_tools_and_its_selections(files: Files) -> None:
    """Its source has failed; back again nothing was lost, and forgetting it is a person's word."""
    path = files.writes("team.toml", ENTRY)
    files.watch.until(lambda event: event["type"] == "catalog-changed")
    entry = files.client.call("providers.get", provider="say", id="team")["entry"]
    assert entry["record"]["token"] != "t0psecret"
    assert b"t0psecret" not in b"".join(one.read_bytes() for one in files.daemon.state.glob("store.db*"))
    session = files.client.call("sessions.create", pattern_id="single")["session"]["id"]
    files.client.call("sessions.update_tooling", session_id=session, tooling={"say": ["team"]})
    os.rename(path, path.with_suffix(".off"))
    files.watch.until(lambda event: event["type"] == "provider-deleted")
    sources = {one["id"]: one for one in files.client.call("tools.list")["sources"]}
    assert (sources["say:team"]["status"], sources["say:team"]["tools"]) == ("failed", 1)
    assert sources["say:team"]["reason"].startswith("withdrawn")
    assert files.client.call("sessions.get", session_id=session)["session"]["tooling"] == {"say": ["team"]}

    os.rename(path.with_suffix(".off"), path)
    files.watch.until(lambda event: event["type"] == "provider-saved")
    assert files.client.call("providers.get", provider="say", id="team")["tools"][0]["id"] == "say_team"
    path.unlink()
    files.watch.until(lambda event: event["type"] == "provider-deleted")
    assert files.client.call("providers.delete", provider="say", id="team")["pruned"] == ["say_team"]


@requirement("FIL-4")
def test_a_checkout_of_another_branch_and_back_loses_nothing(files: Files) -> None:
    def git(*words: str) -> None:
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *words],
            cwd=files.folder,
            check=True,
            capture_output=True,
            timeout=60,
        )

    files.writes("review.toml", REVIEW)
    files.hears()
    git("init", "-q", "-b", "main")
    git("commit", "-q", "--allow-empty", "-m", "empty")
    git("checkout", "-q", "-b", "review")
    git("add", "review.toml")
    git("commit", "-q", "-m", "review")
    git("checkout", "-q", "main")
    files.hears()
    assert "review" not in files.patterns()

    git("checkout", "-q", "review")
    files.hears()
    assert files.auto() == {"view"}


@requirement("CLI-22")
def test_settings_are_taken_over_while_the_daemon_runs(files: Files) -> None:
    """A bad file keeps the last good ones; a signal asks for it as well."""
    config = files.daemon.config / "config.toml"
    config.write_text('[approvals]\ndefault = "none"\n')
    files.hears()
    assert files.client.call("workspace.get")["settings"]["approvals.default"] == "none"

    config.write_text('[approvals]\ndefault = "perhaps"\n')
    assert "approvals.default" in files.hears("config-rejected")["rejected"]["problems"][0]
    assert files.client.call("workspace.get")["settings"]["approvals.default"] == "none"
    config.unlink()
    files.hears()
    assert files.client.call("workspace.get")["settings"]["approvals.default"] == "ask"
    os.kill(files.daemon.pid, signal.SIGHUP)
    files.hears()
