#!/bin/bash
# slurm-job.sh - a job of several nodes under Slurm, with its dataset staged.
#
#     DATASET=/pfs/imagenet sbatch slurm-job.sh python train.py
#
# `monarch run` stands behind srun, in front of the program: in front of srun it would be on
# the first node only. SLURM_TMPDIR is the job's directory on the local SSD, where the site
# has one; RAM counts against the memory of the job.
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --time=04:00:00
set -eu

: "${DATASET:?name the directory of the dataset}"
staging=(--data "$DATASET" --tier ram:30%)
if [ -n "${SLURM_TMPDIR:-}" ]; then
    staging+=(--tier "ssd:80%:$SLURM_TMPDIR")
fi

# Once on each node, in seconds. The job goes on: without staging it reads the origin.
srun --ntasks-per-node=1 --ntasks="$SLURM_JOB_NUM_NODES" monarch doctor "${staging[@]}" \
    >"monarch-doctor-$SLURM_JOB_ID.txt" ||
    echo "staging does not work on each node: see monarch-doctor-$SLURM_JOB_ID.txt" >&2

srun monarch run "${staging[@]}" --report "monarch-%j.json" -- "$@"
