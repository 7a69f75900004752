#!/usr/bin/env bash
# A Ray cluster inside a SLURM allocation, one experiment, and the end of both: sbatch cluster/slurm.sh my_experiment.yaml
# Submitted again, it goes on. CHANGE the lines below; the home folder must be one that all nodes mount.
#SBATCH --job-name=mtlscale
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --time=24:00:00
#SBATCH --signal=B:TERM@60
#SBATCH --output=mtlscale-%j.log
# For GPUs: #SBATCH --gpus-per-node=4, and resources.gpus_per_worker in the experiment.
set -euo pipefail

experiment=${1:?usage: sbatch cluster/slurm.sh EXPERIMENT [further arguments of mtlscale run]}
shift
home=${MTLSCALE_HOME:-$PWD/outputs} # CHANGE where it is no shared folder
venv=${VENV:-$PWD/.venv}
port=$((20000 + SLURM_JOB_ID % 10000))

export PATH="$venv/bin:$PATH"
export RAY_USAGE_STATS_ENABLED=0 RAY_TRAIN_V2_ENABLED=1
# Other users of the nodes must not join: a token of this job alone, readable by its owner alone.
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH="$home/.ray-token-$SLURM_JOB_ID"
mkdir -p "$home"
(umask 077 && python -c 'import secrets; print(secrets.token_hex(32), end="")' >"$RAY_AUTH_TOKEN_PATH")

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${nodes[0]}
head_ip=$(srun --nodes=1 --ntasks=1 --nodelist="$head" hostname --ip-address | awk '{print $1}')
cpus=${SLURM_CPUS_ON_NODE:-$(nproc)}
gpus=${SLURM_GPUS_ON_NODE:-0}

steps=()
finish() {
  # The steps of this job alone; `ray stop` would end other Rays on the node as well.
  for pid in "${steps[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait || true
  rm -f "$RAY_AUTH_TOKEN_PATH"
}
trap finish EXIT
trap 'exit 143' TERM

start=(--disable-usage-stats --block --num-cpus="$cpus" --num-gpus="$gpus")
srun --nodes=1 --ntasks=1 --nodelist="$head" --overlap \
  ray start --head --node-ip-address="$head_ip" --port="$port" --include-dashboard=false "${start[@]}" &
steps+=($!)
until ray health-check --address "$head_ip:$port" 2>/dev/null; do
  kill -0 "${steps[0]}" || { echo "the head did not start on $head" >&2; exit 1; }
  sleep 1
done
for node in "${nodes[@]:1}"; do
  srun --nodes=1 --ntasks=1 --nodelist="$node" --overlap \
    ray start --address="$head_ip:$port" "${start[@]}" &
  steps+=($!)
done

# In the background, so that the signal before the time limit ends it at once: finished runs are kept, the rest resumes.
mtlscale run "$experiment" --address "$head_ip:$port" --home "$home" "$@" &
steps+=($!)
wait $!
