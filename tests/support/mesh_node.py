"""A program that is one node of a job: says on each line which nodes it sees joined."""

import asyncio
import json
import sys
from pathlib import Path

from monarch.cluster import job_secret
from monarch.peers.addresses import PeerSettings
from monarch.peers.mesh import Mesh, MeshCallbacks
from monarch.peers.protocol import Identity, View


def tell(view: View) -> None:
    """Prints the numbers of the nodes that are there."""
    print(json.dumps([member.number for member in view.joined]), flush=True)


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
    tell(mesh.view)
    await asyncio.to_thread(sys.stdin.read)
    await mesh.close()


if __name__ == "__main__":
    asyncio.run(
        main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    )
