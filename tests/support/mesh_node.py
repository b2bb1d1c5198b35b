"""A program that is one node of a job and prints the joined nodes it sees.

It says so over and over: a view that another process does not see change is told too.
Each line is the time, as of time.monotonic(), and the numbers of the nodes.
"""

import asyncio
import json
import sys
import time
from pathlib import Path

from monarch.cluster import job_secret
from monarch.peers.addresses import PeerSettings
from monarch.peers.mesh import Mesh, MeshCallbacks
from monarch.peers.protocol import Identity, View

REPEAT_S = 0.2


def tell(view: View) -> None:
    """Prints the numbers of the nodes that are there."""
    numbers = [member.number for member in view.joined]
    print(json.dumps([time.monotonic(), numbers]), flush=True)


async def repeat(mesh: Mesh) -> None:
    """Prints the view for ever."""
    while True:
        tell(mesh.view)
        await asyncio.sleep(REPEAT_S)


async def main(directory: Path, number: int, nodes: int, host: str) -> None:
    """Lives until its standard input ends."""
    identity = Identity("job", number, job_secret(directory, "job"))
    settings = PeerSettings(identity, nodes, (1,), host=host, directory=directory)
    mesh = Mesh(
        settings,
        MeshCallbacks(
            view_changed=tell,
            socket_received=lambda peer, fd: None,
            note_received=lambda peer, said: None,
            marks_received=lambda numbers: None,
        ),
    )
    await mesh.open()
    repeating = asyncio.create_task(repeat(mesh))
    await asyncio.to_thread(sys.stdin.read)
    repeating.cancel()
    await mesh.close()


if __name__ == "__main__":
    asyncio.run(
        main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    )
