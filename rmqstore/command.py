"""The program `rmqstore`.

Imported by its script alone, before anything that takes time: from here on Ctrl-C ends the program without a word, as
it does any other that has no handler for it.
"""

import signal

_IS_OURS = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else it is ignored, as in a shell's &
if _IS_OURS:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def main() -> None:
    """Runs the command line; Python's handler is there while a command is at work, which then ends in order."""
    from rmqstore.cli import main as command_line  # noqa: PLC0415  the imports that take time
    from rmqstore.cli.signals import has_told_all  # noqa: PLC0415  as above

    try:
        if _IS_OURS:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        command_line()
    except SystemExit:
        if has_told_all():
            for each in (signal.SIGINT, signal.SIGTERM):
                signal.signal(each, signal.SIG_IGN)
        raise
    except KeyboardInterrupt:  # outside of what the command line itself looks after
        raise SystemExit(1) from None
    finally:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # it ended otherwise
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # the interpreter's own end has none either


if __name__ == "__main__":
    main()
