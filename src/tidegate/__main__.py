"""The `tidegate` command, and `python -m tidegate`: quiet if told to stop before there is anything to stop.

To import what a command needs takes a good part of a second, in which Ctrl-C would end in a traceback of
whatever was being imported, or be taken by C code that reports something else.
"""

import errno
import os
import signal
import sys

INTERRUPTED = 130
"""As shells say it: 128 and the number of SIGINT."""


def main() -> None:
    """Import the command that is asked for, and run it."""
    # Not where SIGINT is ignored, as in the background of a script.
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interruptible:
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(INTERRUPTED))
    from tidegate.cli import asked

    command = asked()
    try:
        if interruptible:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        command()
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what stdout still holds would fail again at the end
        sys.stderr.write(f"tidegate: {error.strerror}\n")
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
