"""The proxy of the soak's store, in its own process: `soak_proxy.py PORT SEED`.

The proxy has its own process because Python runs one thread at a time: beside the test's threads, it would make the
store slower than real stores are. The process prints its port. Each line of its standard input begins an outage of
that kind, and an empty line ends the outage; the process answers each line with a line of JSON, the numbers of refused
requests by kind.
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
