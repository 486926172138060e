"""Files as the tools here want them: hashed for provenance, replaced in one go, never left half written."""

import contextlib
import hashlib
import json
import os
import pathlib


class ToolError(Exception):
    """An error the user can act on; printed without a traceback. The codes are those of the kvring CLI."""

    USAGE, INPUT_FILE, CHECK_FAILED = 2, 3, 5

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def sha256_of(path):
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


@contextlib.contextmanager
def replacing(path):
    """Yields a temporary path beside `path`; renames it to `path` on success, removes it on any failure."""
    path = pathlib.Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path, value):
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def require_folder_of(path):
    """Found before the work, not after it: an output that could not be written."""
    folder = pathlib.Path(path).resolve().parent
    if not folder.is_dir():
        raise ToolError(
            ToolError.USAGE, f"--output {path}: the folder {folder} does not exist; create it first"
        )
    if not os.access(folder, os.W_OK):
        raise ToolError(ToolError.USAGE, f"--output {path}: the folder {folder} is not writable")
