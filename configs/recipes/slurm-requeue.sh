#!/bin/bash
# slurm-requeue.sh - a training that is longer than its time limit, or can be preempted.
#
#     DATASET=/pfs/imagenet LOCAL=/local/$USER sbatch slurm-requeue.sh python train.py
#
# Slurm sends SIGUSR1 to the program five minutes before the end, through `monarch run`. The
# program writes a checkpoint and ends with the status REQUEUE; `monarch run` ends with the
# same, and the job is queued again under its number. Where it comes to the same nodes it
# finds the copies there: `retain` keeps them meanwhile.
#SBATCH --nodes=2
#SBATCH --time=04:00:00
#SBATCH --signal=USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
set -eu

: "${DATASET:?name the directory of the dataset}" "${LOCAL:?name a directory on the SSD}"
: "${REQUEUE:=85}"
srun --ntasks-per-node=1 --ntasks="$SLURM_JOB_NUM_NODES" mkdir -p "$LOCAL"

status=0
srun monarch run --data "$DATASET" --tier "ssd:80%:$LOCAL" --set retain=12h \
    --report "monarch-%j-${SLURM_RESTART_COUNT:-0}.json" -- "$@" || status=$?

if [ "$status" -eq "$REQUEUE" ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
