"""``python -m toolyard`` is the command ``toolyard``."""

import sys

__all__ = ["main"]


def main() -> None:
    """Entry point of the program.

    ``toolyard stdio`` starts with every client, so nothing is imported before its shim has attached.
    """
    if "stdio" in sys.argv:
        from toolyard.background.shim import parse_arguments, run_shim

        options = parse_arguments(sys.argv[1:])
        if options is not None:
            code = run_shim(options)
            if code is not None:
                sys.exit(code)
            sys.argv.append("--standalone")
    elif sys.argv[1:2] == ["--background"]:
        sys.exit(_run_background(sys.argv[2]))
    from toolyard.cli import main as run_program

    run_program()


def _run_background(data_dir: str) -> int:
    """Run the background process that a shim starts. Clients can connect before the program is loaded."""
    import gc
    import signal

    from toolyard.background.listener import open_listener

    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    listener = open_listener(data_dir)
    if listener is None:
        return 0
    gc.disable()  # `run_async` enables it
    from toolyard.cli.process_setup import protect_process

    protect_process()
    from pathlib import Path

    from toolyard.background.server import run_background_server
    from toolyard.cli.backends.selection import serve_operation
    from toolyard.cli.invocation import run_async

    run_async(run_background_server(listener, Path(data_dir), serve_operation))
    return 0


if __name__ == "__main__":
    main()
