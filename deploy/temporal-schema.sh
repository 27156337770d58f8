#!/bin/sh
# Temporal's own databases: made if they are missing, brought up to date if they are old. Safe to run again.
set -eu

tool() { temporal-sql-tool --plugin postgres12 --ep postgres --port 5432 --user "$SQL_USER" --db "$@"; }

bring_up() {
    tool "$1" create || true # it is there already
    tool "$1" setup-schema --version 0.0 2>/dev/null || true # it has one already
    tool "$1" update-schema --schema-dir "/etc/temporal/schema/postgresql/v12/$2/versioned"
}

bring_up temporal temporal
bring_up temporal_visibility visibility
