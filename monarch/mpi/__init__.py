"""MPI as a way for nodes to meet and to pass bytes; only these modules know mpi4py."""
