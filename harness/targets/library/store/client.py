"""The client that the harness speaks to: a line of JSON in, a line of JSON out, one operation at a time.

    python client.py 127.0.0.1:7001
"""

from __future__ import annotations

import http.client
import json
import sys


def main() -> None:
    """Answer line by line until standard input ends."""
    connection = http.client.HTTPConnection(sys.argv[1])
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        told = {"id": asked["id"], "type": "ok", "value": None}
        try:
            connection.timeout = asked["timeout_ms"] / 1e3
            if asked["f"] == "write":
                connection.request("PUT", f"/{asked['key']}", json.dumps(asked["value"]))
            else:
                connection.request("GET", f"/{asked['key']}")
            answer = json.loads(connection.getresponse().read())
            if asked["f"] == "read":
                told["value"] = answer
        except ConnectionRefusedError as error:  # the server did not get it
            told.update(type="fail", error=str(error))
            connection.close()
        except (OSError, http.client.HTTPException) as error:  # a write may have happened; a read changes nothing
            told.update(type="info" if asked["f"] == "write" else "fail", error=str(error))
            connection.close()
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
