#!/bin/sh
# Creates or upgrades Temporal's databases. Safe to run again.
set -eu

tool() { temporal-sql-tool --plugin postgres12 --ep postgres --port 5432 --user "$SQL_USER" --db "$@"; }

bring_up() {
    tool "$1" create || true # it exists
    tool "$1" setup-schema --version 0.0 2>/dev/null || true # it has a schema
    tool "$1" update-schema --schema-dir "/etc/temporal/schema/postgresql/v12/$2/versioned"
}

bring_up temporal temporal
bring_up temporal_visibility visibility
