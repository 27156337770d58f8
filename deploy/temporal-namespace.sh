#!/bin/sh
# Creates the namespace of the workers and the CLI, and sets how long it keeps closed workflows. Safe to run again.
# It waits for the server, and fails with the server's own words if that does not become healthy in time.
set -eu
namespace="${TEMPORAL_NAMESPACE:-default}" retention="${TEMPORAL_RETENTION:-90d}" seconds="${WAIT_SECONDS:-120}"

until temporal operator cluster health >/dev/null 2>&1; do
    if [ "$seconds" -le 0 ]; then
        echo "Temporal at ${TEMPORAL_ADDRESS:-127.0.0.1:7233} is not healthy:" >&2
        temporal operator cluster health >&2 || true
        exit 1
    fi
    seconds=$((seconds - 1))
    sleep 1
done

if temporal operator namespace describe --namespace "$namespace" >/dev/null 2>&1; then
    temporal operator namespace update --namespace "$namespace" --retention "$retention"
else
    temporal operator namespace create --namespace "$namespace" --retention "$retention"
fi
echo "namespace $namespace keeps closed workflows for $retention"
