"""Keys at a real terminal: which of them are answers."""

import sys

from tests.fakes import Person
from tests.requirements import requirement

ASKS = """
from eryxd.cli import terminal
from eryxd.cli.ctrl_c import CtrlC

class Quiet:
    def wait(self, also):
        return False

terminal.QUIET_S = 1.5
with CtrlC() as ctrl_c:
    asking = terminal.Terminal(ctrl_c)
    for _ in range(2):
        asking.show("settling")
        asking.settle()
        asking.show("asked")
        asking.show(f"got {asking.key(Quiet())}")
"""


@requirement("CLI-10")
def test_a_key_that_was_pressed_before_the_question_is_no_answer() -> None:
    """As when it is held down, or pressed twice for the question before."""
    with Person([sys.executable, "-c", ASKS], {}) as person:
        person.sees("asked")
        person.types("x")
        person.sees("settling")
        person.types("a")
        person.types("a")
        person.sees("asked")
        person.types("d")
        person.sees("got d")

        assert "got a" not in person.output
        assert person.leaves_with() == 0
