"""What gets away from its tree becomes the daemon's child: it is reaped, and killed when nothing else runs."""

import subprocess
import sys
from pathlib import Path

from tests.requirements import requirement

SUBREAPER = """
import asyncio, os, subprocess, sys, time
from pathlib import Path
from eryxd.daemon import process_tree
from eryxd.daemon.children import Children, become_subreaper
from eryxd.daemon.marks import is_marked

async def main():
    become_subreaper()
    children = Children(Path(sys.argv[1]))
    other = subprocess.Popen(["/bin/sh", "-c", "exit 7"], start_new_session=not is_marked("self"))
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
    orphans = (
        "for i in 1 2 3; do (setsid sh -c 'exit 0' &) ; (setsid sleep 1000 &) ; done;"
        "env -i /usr/bin/setsid /bin/sh -c '(exec sleep 1000) &'; exit 3"
    )
    result = await children.run(["/bin/sh", "-c", orphans], cwd="/", timeout_s=60, limit_bytes=100)
    ours = [process for process in process_tree.every_process() if process.parent == os.getpid()]
    print(result.exit_status, [process.pid for process in ours] == [other.pid], other.wait())
    children.close()

asyncio.run(main())
"""


@requirement("CHD-5")
def test_a_subreaper_reaps_what_it_adopted_and_nobody_elses_children(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SUBREAPER, str(tmp_path / "records")], check=True, capture_output=True, timeout=30
    )

    assert done.stdout == b"3 True 7\n"


REAPING = """
import asyncio, signal, sys
from pathlib import Path
from eryxd.daemon.children import Children, become_subreaper

FORKING = '''
import os, subprocess, sys, time
daemon = os.getppid()
def fields(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    except OSError:
        # It has gone between the listing and the reading.
        return ["X", "0"]
def dead():
    lines = [fields(pid) for pid in os.listdir("/proc") if pid.isdigit()]
    return sum(line[0] == "Z" and int(line[1]) == daemon for line in lines)
for _ in range(200):
    if os.fork() == 0:
        os.fork()
        os._exit(0)
    os.wait()
deadline = time.monotonic() + 20
while dead() > 20:
    if time.monotonic() > deadline:
        sys.exit(9)
'''

async def main():
    become_subreaper()
    children = Children(Path(sys.argv[1]))
    asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, children.child_ended)
    words = [sys.executable, "-c", FORKING]
    result = await children.run(words, cwd="/", timeout_s=60, limit_bytes=10000)
    print(result.exit_status, result.stderr.decode())
    children.close()

asyncio.run(main())
"""


@requirement("CHD-5")
def test_the_dead_of_a_program_that_forks_on_and_on_are_reaped_while_it_runs(tmp_path: Path) -> None:
    """Unreaped they would fill the process table of the whole machine."""
    done = subprocess.run(
        [sys.executable, "-c", REAPING, str(tmp_path / "records")], check=True, capture_output=True, timeout=60
    )

    assert done.stdout == b"0 \n"
