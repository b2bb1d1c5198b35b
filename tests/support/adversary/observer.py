"""A second process, started first, that checks names on request."""

import json
import os
from dataclasses import dataclass

from support.adversary.play import Play

ANSWER_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class Observer:
    """A child that shares nothing with its parent but the files."""

    process: int
    orders: int
    answers: int

    @classmethod
    def start(cls, play: Play) -> "Observer":
        """A child that is as cold as its parent."""
        orders, order_end = os.pipe()
        answer_end, answers = os.pipe()
        process = os.fork()
        if process == 0:
            os.close(order_end)
            os.close(answer_end)
            observe(play, orders, answers)
            os._exit(0)
        os.close(orders)
        os.close(answers)
        return cls(process, order_end, answer_end)

    def look(self) -> list[str]:
        """What is wrong with what it is shown."""
        os.write(self.orders, b"?")
        answer = b""
        while not answer.endswith(b"\n"):
            piece = os.read(self.answers, ANSWER_BYTES_MAX)
            if not piece:
                return ["the observer has ended"]
            answer += piece
        return [f"{told} (as another process sees it)" for told in json.loads(answer)]

    def end(self) -> None:
        """Lets the child go."""
        os.close(self.orders)
        os.close(self.answers)
        os.waitpid(self.process, 0)


def observe(play: Play, orders: int, answers: int) -> None:
    """Looks as often as it is asked to."""
    while os.read(orders, 1):
        play.wrong = []
        play.look(True)
        os.write(answers, json.dumps(play.wrong).encode() + b"\n")
