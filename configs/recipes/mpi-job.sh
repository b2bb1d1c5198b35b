#!/bin/bash
# mpi-job.sh - several ranks on each node by mpiexec alone, on nodes that you name.
#
#     DATASET=/pfs/imagenet mpi-job.sh node1,node2 8 python train.py
#
# All ranks of a node share one agent. The nodes meet in a directory that all of them see;
# by default it is ~/.local/state/monarch-staging.
set -eu

hosts=${1:?name the nodes, as in node1,node2} ranks=${2:?name the ranks of a node}
shift 2
: "${DATASET:?name the directory of the dataset}"
meet=()
if [ -n "${RENDEZVOUS:-}" ]; then
    meet=(--set "peers.rendezvous=$RENDEZVOUS")
fi

IFS=, read -ra nodes <<<"$hosts"
total=$((${#nodes[@]} * ranks))
if mpiexec --version 2>/dev/null | grep -q "Open MPI\|OpenRTE"; then
    launch=(-n "$total" --host "${hosts//,/:$ranks,}:$ranks")
else
    launch=(-n "$total" -ppn "$ranks" -hosts "$hosts")
fi

mpiexec "${launch[@]}" monarch run --data "$DATASET" --tier ram:30% "${meet[@]}" \
    --report "monarch-%j.json" -- "$@"
