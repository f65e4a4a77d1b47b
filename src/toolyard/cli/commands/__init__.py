"""One module per subcommand of ``toolyard``, each with a Click command named ``command``."""
