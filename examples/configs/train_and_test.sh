#!/bin/sh
# Trains a model, then tests it: examples/configs/train_and_test.sh run.yaml [key=value ...]
# Interrupted, the same command continues. A starting point for a job script.
set -e

# CPU threads; without a limit torch takes every core of the machine, the job's or not.
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-2}"
# Waiting threads sleep: on cores shared with other processes, spinning costs far more than it saves.
export OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-passive}"
# Folder of generated kernels; on a cluster, one that all nodes see.
export FLASHCART_CACHE_DIR="${FLASHCART_CACHE_DIR:-$HOME/.cache/flashcart}"
# Highest tensor rank that Triton kernels are generated for, and whether GPU results must be bitwise reproducible.
export FLASHCART_KERNEL_L_MAX="${FLASHCART_KERNEL_L_MAX:-3}"
export FLASHCART_DETERMINISTIC="${FLASHCART_DETERMINISTIC:-false}"

flashcart-train "$@"
flashcart-test "$@"
