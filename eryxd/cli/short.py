"""`eryx status --short`, which shell prompts call all the time: no typer, one call.  `eryx status` calls the same."""

from eryxd.cli.report import fail
from eryxd.client.client import Client, ClientError, DaemonNotRunning


def print_short() -> int:
    """Print what waits and runs in a few words; return the exit status."""
    try:
        with Client.connect(name="cli") as client:
            status = client.call("daemon.status")
    except DaemonNotRunning as error:
        print("stopped")
        return error.exit_status
    except ClientError as error:
        return fail(error, as_json=False)
    counts = [(status["waiting"], "waiting"), (status["running"], "running")]
    words = ", ".join(f"{count} {word}" for count, word in counts if count)
    store = "" if status["store"]["writable"] else "store read-only"
    print(", ".join(part for part in (words, store) if part) or "idle")
    return 0
