"""Key for fingerprints, which are keyed hashes of server entries.

Fingerprints are stored with cached data of a server. Entries may contain secrets: without a key, a reader of
that storage could test guesses of the secrets against the hashes.
"""

from __future__ import annotations

import hmac
import os
import secrets
from contextlib import suppress
from pathlib import Path

from toolyard.config.file_io import create_private_file, read_regular_file
from toolyard.errors import ConfigError

__all__ = ["FILE_NAME", "fingerprint_key"]

FILE_NAME = "fingerprint.key"
_KEY_BYTES = 32
_PURPOSE = b"toolyard fingerprints 1"


def fingerprint_key(secret_key: str | None, data_dir: Path | None) -> bytes:
    """Derive the key from the secret key, so that replicas agree, or else read it from the data directory.

    A missing file is created. If that fails the key is random, so that cached data is not found again.
    """
    if secret_key is not None:
        return hmac.digest(secret_key.encode(errors="surrogatepass"), _PURPOSE, "sha256")
    if data_dir is not None:
        with suppress(ConfigError, OSError):
            return _read_or_write(data_dir / FILE_NAME)
    return secrets.token_bytes(_KEY_BYTES)


def _read_or_write(path: Path) -> bytes:
    if os.path.lexists(path):
        key = read_regular_file(path)
        if len(key) == _KEY_BYTES:
            return key
        path.unlink(missing_ok=True)  # A crash or a full disk has damaged it. Cached data is fetched again.
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    create_private_file(fresh, secrets.token_bytes(_KEY_BYTES))
    try:
        # Unlike a rename, a link does not replace the file of a concurrent process.
        with suppress(FileExistsError):
            os.link(fresh, path)
    finally:
        fresh.unlink()
    return read_regular_file(path)
