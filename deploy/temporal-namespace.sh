#!/bin/sh
# The namespace that the workers and the CLI use. Safe to run again.
set -eu

temporal operator namespace describe --namespace default >/dev/null 2>&1 ||
    temporal operator namespace create --namespace default --retention 90d
