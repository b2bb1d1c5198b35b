#!/bin/bash
# container-job.sh - the program is in an image of Apptainer, Monarch is on the node.
#
#     DATASET=/pfs/imagenet IMAGE=train.sif sbatch container-job.sh python train.py
#
# The image needs nothing of Monarch, only dynamically linked programs (glibc 2.17 or newer,
# or musl); `monarch doctor --root DIR` looks at an unpacked one. `monarch env` prints what
# the container has to be given: the dataset and the tiers at their own paths, /dev/shm, and
# two variables, under names that Apptainer passes on even where it is installed setuid.
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --time=04:00:00
set -eu

: "${DATASET:?name the directory of the dataset}" "${IMAGE:?name the image}"
export IMAGE

# shellcheck disable=SC2016 # each node expands these for itself
srun monarch run --data "$DATASET" --tier ram:30% --report "monarch-%j.json" -- \
    sh -c 'eval "$(monarch env --apptainer)" && exec apptainer exec --nv "$IMAGE" "$@"' \
    sh "$@"
