"""ObjectIds that the server generates, for documents inserted without `_id`."""

import os

from mongottl.document.types import ObjectId


class ObjectIdGenerator:
    """Generates ObjectIds as the BSON specification says: time in seconds, random value of the process, counter."""

    def __init__(self) -> None:
        self._random = os.urandom(5)
        # `oidMachine` in the reply of `features`: three bytes, as old ObjectIds had of the machine.
        self.machine: int = int.from_bytes(self._random[:3], "big")
        self._counter = int.from_bytes(os.urandom(3), "big")

    def generate(self, now_s: int) -> ObjectId:
        self._counter = (self._counter + 1) & 0xFFFFFF
        return ObjectId((now_s & 0xFFFFFFFF).to_bytes(4, "big") + self._random + self._counter.to_bytes(3, "big"))
