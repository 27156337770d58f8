#!/bin/sh
# Creates the namespace of the workers and the CLI. Safe to run again.
set -eu

temporal operator namespace describe --namespace default >/dev/null 2>&1 ||
    temporal operator namespace create --namespace default --retention 90d
