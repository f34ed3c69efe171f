"""Reads an RDB file with rdb-py from end to end and tells what it saw, as JSON: a program, see `library.survey`.

It has a process of its own because rdb-py ends the process it runs in when the length in a damaged file asks for more
memory than there is. It imports nothing of ours, so that it starts at once.
"""

import json
import sys

import rdb

_NO_KEY = ("select_db", "resize_db", "aux_field", "checksum")


def main(path: str) -> None:
    keys, announced, tail = 0, None, b""
    for item in rdb.RdbDecoder(path):
        if item["type"] == "resize_db":
            announced = (announced or 0) + item["db_size"]
        elif item["type"] == "checksum":
            tail = item["checksum"]  # all that follows the end mark, in truth
        elif item["type"] not in _NO_KEY:
            keys += 1
    print(json.dumps({"keys": keys, "announced": announced, "tail": tail[:8].hex(), "behind": len(tail)}))  # noqa: T201 - its result


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except ValueError as error:
        sys.exit(f"{error}")
