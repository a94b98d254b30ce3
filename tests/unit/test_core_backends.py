"""Which backend runs an agent."""

from typing import Any

import pytest
from msgspec import UNSET

from eryxd.api.replies import BackendState
from eryxd.core.runs import choose_backend
from eryxd.domain.errors import BackendUnavailable
from eryxd.domain.ids import BackendName
from tests.builders import agent, backend_state, capabilities
from tests.requirements import requirement


def ready(*names: str, **changes: Any) -> dict[BackendName, BackendState]:
    """Return these backends, all ready."""
    return {BackendName(name): backend_state(name, **changes) for name in names}


@requirement("BKD-3")
@pytest.mark.parametrize(
    ("named", "default", "expected"),
    [("copilot", "chat", "copilot"), (None, "chat", "chat"), (None, None, "chat")],
    ids=["the agent's", "the configured", "the only ready one"],
)
def test_the_backend_is_the_nearest_that_was_named(named: str | None, default: str | None, expected: str) -> None:
    """Else the one that is ready; `replay` is ready and never chosen by itself."""
    there = {
        **ready("chat"),
        **ready("replay", by_default=False),
        **ready("copilot", by_default=False),
    }
    chosen = choose_backend(agent(backend=named), UNSET if default is None else BackendName(default), there)

    assert chosen == expected


@requirement("BKD-3")
@pytest.mark.parametrize(
    ("there", "data"),
    [
        (ready("replay", by_default=False), {"ready": [], "known": ["replay"]}),
        (ready("copilot", "chat"), {"ready": ["chat", "copilot"], "known": ["chat", "copilot"]}),
        (ready("copilot", capabilities=capabilities("auth-required")), {"ready": [], "known": ["copilot"]}),
        (ready("copilot", capabilities=None), {"ready": [], "known": ["copilot"]}),
    ],
    ids=["none", "several", "not ready", "never answered"],
)
def test_none_or_several_are_an_error_that_names_them_and_the_setting(there: Any, data: dict[str, Any]) -> None:
    """eryx does not guess."""
    with pytest.raises(BackendUnavailable) as caught:
        choose_backend(agent(), UNSET, there)

    assert caught.value.data == {**data, "setting": "defaults.backend"}


@requirement("BKD-3")
def test_a_named_backend_that_is_missing_or_not_ready_is_an_error_and_not_replaced() -> None:
    """Another one would run under other rules than the person meant."""
    with pytest.raises(BackendUnavailable) as caught:
        choose_backend(agent(backend="gone"), UNSET, ready("chat"))
    assert caught.value.data == {"backend": "gone", "known": ["chat"]}

    with pytest.raises(BackendUnavailable) as caught:
        choose_backend(agent(), BackendName("chat"), ready("chat", capabilities=capabilities("cli-missing")))
    assert (caught.value.data["backend"], caught.value.data["status"]) == ("chat", "cli-missing")
