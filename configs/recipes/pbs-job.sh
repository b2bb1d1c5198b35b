#!/bin/bash
# pbs-job.sh - a job of several nodes under PBS (OpenPBS, PBS Professional).
#
#     qsub -v DATASET=/pfs/imagenet,PROGRAM="python train.py" pbs-job.sh
#
# One process on each node starts the program; the nodes are those of PBS_NODEFILE. PBS gives
# the script no arguments, so PROGRAM is split at its blanks.
#PBS -l select=4:ncpus=32:mem=128gb
#PBS -l place=scatter:excl
#PBS -l walltime=04:00:00
set -eu
cd "${PBS_O_WORKDIR:-.}"

: "${DATASET:?name the directory of the dataset}" "${PROGRAM:?name the program}"
read -ra program <<<"$PROGRAM"
staging=(--data "$DATASET" --tier ram:30%)
if [ -n "${LOCAL:-}" ]; then
    staging+=(--tier "ssd:80%:$LOCAL")
fi

nodes=$(sort -u "$PBS_NODEFILE" | wc -l)
once_on_each=(-n "$nodes" -ppn 1) # of MPICH, Intel MPI and PALS
if mpiexec --version 2>/dev/null | grep -q "Open MPI\|OpenRTE"; then
    once_on_each=(-n "$nodes" --map-by ppr:1:node)
fi

mpiexec "${once_on_each[@]}" monarch run "${staging[@]}" \
    --report "monarch-%j.json" -- "${program[@]}"
