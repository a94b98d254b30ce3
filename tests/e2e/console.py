"""Plays the console blocks of a document: on a real terminal, in order, each line of output held against the page.

What differs from one run to the next is recognised by its form: ids, times, dates, process numbers, sizes, digests
and the folders above a file.  An id that the page names twice has to be the same one both times.  A line of `…`
stands for any lines.  A question (`… > `) is answered with what the page shows behind it; one that the page leaves
open stays open on a terminal of its own while later commands run.  Lines about the tool `rg` are passed over: whether
it is there depends on the machine.
"""

import codecs
import contextlib
import os
import re
import select
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.documents import Step, blocks, shown, steps

COLUMNS: Final = 120
"""Width of the terminal, which is that of the pages."""

PATIENCE_S: Final = 20.0
"""Longest wait for a line.  Only a failure takes that long."""

ANY_LINES: Final = "…"

_QUESTION: Final = re.compile(r"^(  (?:\[a\]pprove|note for the agent).*>) ?(.*)$")
_LOOKS: Final = re.compile(r"^eryx (?:\w+ (?:list|show)|status|timeline)\b")
"""Commands that only look.  Who looks too early looks again."""

_MAYBE: Final = re.compile(r"^(?:\? asks  )?rg  ")
_EXPORT: Final = re.compile(r"^export (\w+)=(.*)$")
_ID: Final = re.compile(r"\b[srmapj](?=[a-z]*[2-7])[a-z2-7]{3,16}\b")
_STAMP: Final = re.compile(r"\d{4}\\-\d\d\\-\d\dT\d+Z")
_FORMS: Final = (
    (_ID, ""),
    (re.compile(r"\b[0-9a-f]{64}\b"), r"[0-9a-f]{64}"),
    (re.compile(r"\d\d:\d\d:\d\d"), r"\d\d:\d\d:\d\d"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d"), r"\d{4}-\d\d-\d\d\s\d\d:\d\d"),
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z"), r"\d{4}-\d\d-\d\dT[\d:.]+Z"),
    (re.compile(r"pid \d+"), r"pid\s\d+"),
    (re.compile(r"Process \d+"), r"Process\s\d+"),
    (re.compile(r"\d+\.\d\ds"), r"\d+\.\d\ds"),
    (re.compile(r"\d+ bytes"), r"\d+\sbytes"),
    (re.compile(r"(?<![\w.~])/[\w.~/-]+"), ""),
    # Where a line is cut moves with the width of a number in it.
    (re.compile(r"\S+…"), r"\S*.{0,8}…"),
    (re.compile(r"\s+"), r"\s+"),
)
"""What is recognised in a line of a page, and what may stand there instead; ids and paths are made by hand."""


class Names:
    """Which id of this run each id of a page stands for."""

    def __init__(self, real: Mapping[str, str] = {}) -> None:
        self._real = dict(real)

    def copy(self) -> "Names":
        """Return the same names, to come back to."""
        return Names(self._real)

    def same(self, page: str, printed: str) -> bool:
        """Say whether a printed line is the page's; take note of the ids in it when it is."""
        pattern, ids = self._pattern(page.rstrip())
        match = re.fullmatch(pattern, printed.rstrip())
        if match is None or not all(map(self._fits, ids, match.groups())):
            return False
        for written, real in zip(ids, match.groups(), strict=True):
            self._real[written[:4]] = max(self._real.get(written[:4], ""), real, key=len)
        return True

    def _fits(self, written: str, real: str) -> bool:
        known = self._real.get(written[:4], real)
        return known.startswith(real) or real.startswith(known)

    def _pattern(self, page: str) -> tuple[str, list[str]]:
        """Return an expression for what may be printed, with a group for each id, and the ids as written."""
        pattern, ids, at = "", list[str](), 0
        while at < len(page):
            match, instead = next(((m, instead) for form, instead in _FORMS if (m := form.match(page, at))), (None, ""))
            if match is None:
                pattern, at = pattern + re.escape(page[at]), at + 1
                continue
            if match.re is _ID:
                ids.append(match[0])
                instead = f"({match[0][0]}[a-z2-7]{{3,16}})"
            pattern += instead or r"\S*/" + _STAMP.sub(r"[0-9TZ-]+", re.escape(os.path.basename(match[0])))
            at = match.end()
        return pattern, ids

    def real(self, command: str) -> str:
        """Return a command of the page with the ids of this run."""
        return _ID.sub(lambda match: self._real.get(match[0][:4], match[0]), command)


class Terminal:
    """One command on a terminal of its own."""

    def __init__(self, command: str, folder: Path, environ: dict[str, str]) -> None:
        self._screen, inner = os.openpty()
        termios.tcsetwinsize(inner, (50, COLUMNS))
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            cwd=folder,
            env=environ,
            stdin=inner,
            stdout=inner,
            stderr=inner,
            start_new_session=True,
        )
        os.close(inner)
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._pending = ""
        self._ended = False
        self._answered = ""

    def line(self) -> str | None:
        """Return the next line, None after the last."""
        self._read_until(self._has_line)
        if not self._pending:
            return None
        line, _, self._pending = self._pending.partition("\n")
        return line

    def is_asking(self, question: str) -> bool:
        """Wait for a whole line or a question; say whether it is this question."""
        self._read_until(lambda: self._has_line() or self._pending.endswith("> "))
        return self._pending.rstrip(" ") == question

    def answer(self, question: str, keys: str) -> None:
        """Type what a person types: a single key, or a line."""
        self._pending, self._answered = "", question
        os.write(self._screen, (keys if len(keys) == 1 else f"{keys}\n").encode())
        # What is typed shows on the line of the question.
        self._read_until(lambda: "\n" in self._pending)
        self._pending = self._pending.partition("\n")[2]

    def _has_line(self) -> bool:
        """Say whether a line has come, other than one to pass over."""
        while "\n" in self._pending:
            line, _, rest = self._pending.partition("\n")
            # A question is asked again when something else has happened meanwhile.
            if not (_MAYBE.match(line) or (self._answered and line.startswith(self._answered))):
                return True
            self._pending = rest
        return False

    def close(self) -> None:
        """Wait for the command's end, and leave nothing of it."""
        try:
            self._process.wait(PATIENCE_S)
        finally:
            self.kill()

    def kill(self) -> None:
        """End it at once, unless it has ended."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        with contextlib.suppress(OSError):
            os.close(self._screen)

    def _read_until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not (self._ended or done()):
            ready, _, _ = select.select([self._screen], [], [], max(deadline - time.monotonic(), 0))
            assert ready, f"nothing more came; the last was {self._pending!r}"
            try:
                printed = os.read(self._screen, 65536)
            except OSError:
                # How a terminal says that nobody has it open any more.
                printed = b""
            self._ended = not printed
            self._pending += self._decoder.decode(printed, final=self._ended).replace("\r\n", "\n")


class Console:
    """A folder, and a person who types there what a page says."""

    def __init__(self, folder: Path, scripts: Path = Path(sys.executable).parent) -> None:
        """`scripts` is where `eryx` and Python are."""
        self._folder = folder
        self._names = Names()
        self._left: list[Terminal] = []
        self._environ = {
            **{name: value for name, value in os.environ.items() if name.startswith("PIP_")},
            "PATH": f"{scripts}:{os.environ['PATH']}",
            "HOME": str(folder),
            "PWD": str(folder),
            "ERYX_HOME": str(folder / "eryx"),
            "LANG": "C.UTF-8",
            "NO_COLOR": "1",
            "TERM": "xterm",
            "TZ": "UTC",
        }

    def play(self, page: Path) -> int:
        """Save every block that has a title, run every console block; return how many commands were run."""
        count = 0
        for block in blocks(page):
            if block.title:
                file = self._folder / block.title
                file.parent.mkdir(exist_ok=True)
                file.write_text(block.text)
            for step in steps(block) if block.language == "console" else ():
                self._do(step, page)
                count += 1
        return count

    def start(self) -> None:
        """Start a daemon for a page that takes one for granted."""
        self._daemon("start")

    def close(self) -> None:
        """Stop the daemon and everything that was left open."""
        try:
            self._daemon("stop")
        finally:
            for terminal in self._left:
                terminal.kill()

    def _daemon(self, verb: str) -> None:
        command = ["eryx", "daemon", verb]
        # Stopping one that does not run is no failure.
        subprocess.run(
            command, cwd=self._folder, env=self._environ, capture_output=True, timeout=PATIENCE_S, check=verb == "start"
        )

    def _do(self, step: Step, page: Path) -> None:
        if match := _EXPORT.match(step.command):
            self._environ[match[1]] = match[2].strip('"').replace("$PWD", str(self._folder))
            return
        deadline = time.monotonic() + PATIENCE_S / 2
        while True:
            before = self._names.copy()
            try:
                return self._type(step)
            except AssertionError as error:
                if not _LOOKS.match(step.command) or time.monotonic() > deadline:
                    error.add_note(f"{shown(page)}:{step.line}: $ {step.command}")
                    raise
                self._names = before

    def _type(self, step: Step) -> None:
        terminal = Terminal(self._names.real(step.command), self._folder, self._environ)
        try:
            stays = self._compare(step, terminal)
        except BaseException:
            terminal.kill()
            raise
        if stays:
            self._left.append(terminal)
        else:
            terminal.close()

    def _compare(self, step: Step, terminal: Terminal) -> bool:
        """Hold what a command prints against the page; return whether it is left with an open question."""
        skips = False
        for line in step.output:
            if line == ANY_LINES:
                skips = True
                continue
            if question := _QUESTION.match(line):
                self._await_question(terminal, question[1], skips)
                if not question[2]:
                    return True
                terminal.answer(question[1], question[2])
            else:
                self._await_line(terminal, line, skips)
            skips = False
        rest = self._rest(terminal)
        assert skips or rest == [], f"the page ends before the output does: {rest}"
        return False

    def _await_question(self, terminal: Terminal, question: str, skips: bool) -> None:
        while not terminal.is_asking(question):
            printed = terminal.line()
            assert printed is not None, f"the output ends before {question!r}"
            assert skips or printed.startswith(question), f"instead of {question!r} came {printed!r}"

    def _await_line(self, terminal: Terminal, line: str, skips: bool) -> None:
        while (printed := terminal.line()) is None or not self._names.same(line, printed):
            assert printed is not None, f"the output ends before {line!r}"
            assert skips, f"\nthe page: {line!r}\nprinted:  {printed!r}"

    def _rest(self, terminal: Terminal) -> list[str]:
        rest = []
        while (printed := terminal.line()) is not None:
            rest.append(printed)
        return rest
