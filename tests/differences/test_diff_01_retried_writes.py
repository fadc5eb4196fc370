"""What is remembered for retries of writes has a bound of 64 MiB.

MongoDB keeps the statements of retryable writes in its oplog and the images of findAndModify in
`config.image_collection`. A retry whose entries have left the oplog is refused as well. Source: MongoDB manual,
"Retryable Writes".
"""

from typing import Any

from bson import Binary, Int64

import mongottl
from tests.drivers.protocol.test_protocol import Raw


def test_the_oldest_images_are_forgotten() -> None:
    with mongottl.start_server() as server:
        raw = Raw(server.port)

        def take(session: int) -> dict[str, Any]:
            lsid = {"id": Binary(bytes([session]) * 16, 4)}
            command = {"findAndModify": "c", "query": {"_id": session}, "remove": True}
            return raw.run({**command, "lsid": lsid, "txnNumber": Int64(1)})

        for session in range(5):
            raw.run({"insert": "c", "documents": [{"_id": session, "filling": bytes(15_000_000)}]})
            assert take(session)["value"]["_id"] == session
        assert take(0)["code"] == 217
        assert take(1)["retriedStmtId"] == 0
        raw.socket.close()
