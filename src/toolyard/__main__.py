"""``python -m toolyard`` is the command ``toolyard``."""

from toolyard.cli import main

if __name__ == "__main__":
    main()
