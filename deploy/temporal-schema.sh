#!/bin/sh
# Creates or upgrades Temporal's databases. Safe to run again.
# It waits for PostgreSQL. Only "exists already" is passed over: every other error ends it, and is shown.
set -eu
host="${POSTGRES_HOST:-postgres}" port="${POSTGRES_PORT:-5432}" seconds="${WAIT_SECONDS:-120}"
tool() { temporal-sql-tool --plugin postgres12 --ep "$host" --port "$port" --user "$SQL_USER" --db "$@"; }

until nc -z "$host" "$port" 2>/dev/null; do
    [ "$seconds" -gt 0 ] || { echo "no PostgreSQL at $host:$port" >&2; exit 1; }
    seconds=$((seconds - 1))
    sleep 1
done

unless_it_exists() { # COMMAND…: fails with its output, unless that says that what it makes is there
    if said=$("$@" 2>&1); then return 0; fi
    case "$said" in
    *"already exists"*) return 0 ;;
    *) echo "$said" >&2; return 1 ;;
    esac
}
bring_up() {
    unless_it_exists tool "$1" create
    unless_it_exists tool "$1" setup-schema --version 0.0
    tool "$1" update-schema --schema-dir "/etc/temporal/schema/postgresql/v12/$2/versioned"
}
bring_up temporal temporal
bring_up temporal_visibility visibility
