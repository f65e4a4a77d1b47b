"""The links of the chain, one a file, in the words of the design."""
