# SPDX-License-Identifier: Apache-2.0
"""Work of hours that is done in pieces: each is a line of JSON in a file, with the commit it was done on."""

import json
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent


def commit_of_tree():
    """With a mark if the tree has been changed since."""

    def git(*args):
        return subprocess.run(["git", "-C", ROOT, *args], capture_output=True, text=True, check=False).stdout.strip()  # fmt: skip

    return (git("rev-parse", "--short=12", "HEAD") or "unknown") + ("+" if git("status", "--porcelain") else "")


def read_results(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def add_result(path, result):
    with open(path, "a", encoding="utf-8") as results:
        print(json.dumps(result), file=results)
