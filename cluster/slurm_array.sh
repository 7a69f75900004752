#!/usr/bin/env bash
# One experiment as a SLURM job array, without Ray, for sites that forbid head nodes: sbatch cluster/slurm_array.sh my_experiment.yaml
# Tasks divide the runs through the home folder, which all nodes must mount. Submitted again, the array goes on.
# Prepare the data before it, where there is a network; after it, `mtlscale run my_experiment.yaml` compares the runs.
#SBATCH --job-name=mtlscale
#SBATCH --array=0-7
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=1
#SBATCH --time=24:00:00
#SBATCH --signal=B:TERM@60
#SBATCH --requeue
#SBATCH --output=mtlscale-%A_%a.log
# CHANGE the number of tasks and the time above. For GPUs: #SBATCH --gpus-per-task=1, and resources.gpus_per_worker.
set -euo pipefail

experiment=${1:?usage: sbatch cluster/slurm_array.sh EXPERIMENT [further arguments of mtlscale work]}
shift
home=${MTLSCALE_HOME:-$PWD/outputs} # CHANGE where it is no shared folder
venv=${VENV:-$PWD/.venv}

export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}
# In place of the shell, so that the signal before the time limit ends it at once: the run in hand resumes.
exec "$venv/bin/mtlscale" work "$experiment" --task "${SLURM_ARRAY_TASK_ID:-0}" --home "$home" "$@"
