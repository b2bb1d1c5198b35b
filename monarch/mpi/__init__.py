"""Finding nodes and exchanging values by MPI; only these modules use mpi4py."""
