#!/bin/bash
# slurm-array.sh - an array of jobs that read one dataset, such as a search of parameters.
#
#     DATASET=/pfs/imagenet LOCAL=/local/$USER sbatch slurm-array.sh python train.py
#
# Each task of the array is a job of its own for Monarch. A task that comes to a node where
# another one has been finds its copies: `retain` keeps them for that long after the last
# job, and they are checked before they are used. Tasks that run on one node at the same time
# share: files up to `cold_open.wait_max` (8 MiB) are read once and stored once; the other tasks
# link them. Each task reads and stores larger files itself, because `retain` needs their
# checksums; leave `retain` out for datasets of large files, and they are linked as well.
# LOCAL must outlive the job, which /tmp and /dev/shm do not everywhere
# (job_container/tmpfs). At the end of all, to have the space back at once:
# srun -w NODES monarch clean --retained "$LOCAL"
#SBATCH --array=0-15%4
#SBATCH --nodes=1
#SBATCH --time=01:00:00
set -eu

: "${DATASET:?name the directory of the dataset}" "${LOCAL:?name a directory on the SSD}"
mkdir -p "$LOCAL"

srun monarch run --data "$DATASET" --tier "ssd:80%:$LOCAL" --set retain=2h \
    --report "monarch-%j.json" -- "$@" --seed "$SLURM_ARRAY_TASK_ID"
