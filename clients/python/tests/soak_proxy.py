"""The proxy of the soak's store, in a process of its own: `soak_proxy.py PORT SEED`.

Python runs one thread at a time: beside the test's own threads, the store would be slower than a store is. Prints its
port. Each line of its standard input begins an outage of that kind, or ends it where it is empty; the answer is a line
with what was refused so far.
"""

from __future__ import annotations

import json
import sys
from contextlib import closing

from soak_outages import OutageProxy


def main() -> None:
    port, seed = map(int, sys.argv[1:])
    with closing(OutageProxy(port, seed)) as proxy:
        print(proxy.port, flush=True)
        for line in sys.stdin:
            if kind := line.strip():
                proxy.begin(kind)
            else:
                proxy.end()
            print(json.dumps(proxy.faults.fired), flush=True)


if __name__ == "__main__":
    main()
