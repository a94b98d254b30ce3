"""The executable `eryx`."""

import sys


def main() -> None:
    """Run the command line and exit."""
    # What standard output cannot show (a terminal that is not UTF-8) must not end a command half way.
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    if sys.argv[1:] == ["status", "--short"]:
        # Shell prompts call this all the time, and importing typer is most of what it would cost.
        from eryxd.cli.short import print_short

        sys.exit(print_short())
    from eryxd.cli.tree import app

    app()


if __name__ == "__main__":
    main()
