"""What commands print: for a terminal, for a pipe, for a program."""
