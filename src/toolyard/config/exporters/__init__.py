"""One entry of ours, put into the configuration of another client, or taken out of it again.

Everything else in the file stays as its owner wrote it, comments and layout too. What cannot be done so is
refused, and nothing is written.
"""
