#!/bin/bash
# slurm-prolog.sh - for the site's Prolog: a private directory of the user on the local SSD.
#
# It runs as root on each node before a job, for sites whose users may not make a directory
# there themselves: /local belongs to root, mode 755, so that no user can prepare another's.
# A prolog that fails drains the node; nothing here is worth that.
LOCAL=${LOCAL:-/local}
place=$LOCAL/${SLURM_JOB_USER:?}

if ! mkdir -m 700 "$place" 2>/dev/null && [ ! -d "$place" ]; then
    echo "monarch: cannot make $place; jobs of $SLURM_JOB_USER have no tier there" >&2
    exit 0
fi
chown "$SLURM_JOB_USER" "$place"
exit 0
