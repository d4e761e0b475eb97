#!/bin/sh
# An enroot image with an environment inside, for Slurm with pyxis: no Docker daemon, no root.
#
#   verl-env bundle verl091-vllm024-cu130 --python 3.12 -o env.tar
#   sh enroot.sh env.tar 580.95.05
#   srun --container-image=./verl.sqsh --gpus=8 sh -c '. /opt/verl-env/current/exports.sh; exec python train.py'
set -eu

bundle=$(readlink -f "${1:?name the bundle}")
driver=${2:?name the driver of the nodes, such as 580.95.05}

enroot import -o base.sqsh docker://ubuntu:24.04
enroot create -n verl-env-build base.sqsh
enroot start --root --rw --mount "$bundle:/tmp/env.tar" verl-env-build sh -eu -c "
    apt-get update
    apt-get install -y --no-install-recommends python3.12 python3.12-dev python3.12-venv gcc g++ ninja-build
    rm -rf /var/lib/apt/lists/*
    export VERL_ENV_HOME=/opt/verl-env
    cd /tmp
    tar -xf env.tar start.sh
    sh start.sh env.tar --driver '$driver' --quiet
    rm -rf start.sh /opt/verl-env/cache ~/.cache
"
enroot export -o verl.sqsh verl-env-build
enroot remove -f verl-env-build
rm base.sqsh
