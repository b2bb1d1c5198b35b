#!/bin/bash
# slurm-epilog.sh - for the site's Epilog: gives back what a killed job has left on a node.
#
# It runs as root on each node after a job. A job that ends by itself leaves nothing; one
# whose agent was killed leaves its RAM and SSD tiers until the same user starts Monarch there
# again. What running jobs use, and what `retain` keeps, stays. As the user, and with a time
# limit: homes may hang. An epilog that fails drains the node; nothing here is worth that.
LOCAL=${LOCAL:-/local}
MONARCH=${MONARCH:-/opt/monarch/command/monarch}

places=()
if [ -d "$LOCAL/${SLURM_JOB_USER:?}" ]; then
    places=("$LOCAL/$SLURM_JOB_USER")
fi
timeout 30 runuser -u "$SLURM_JOB_USER" -- "$MONARCH" clean "${places[@]}" ||
    echo "monarch clean has failed for $SLURM_JOB_USER" >&2
exit 0
