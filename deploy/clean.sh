#!/bin/sh
# Once a day, deletes rows of Airflow's database and task logs that are older than KEEP_DAYS days.
# The ledger and the store have their own retention: docs/howto/retention.md.
set -eu
while true; do
  before=$(date -u -d "-$KEEP_DAYS days" +%Y-%m-%dT%H:%M:%S+00:00)
  airflow db clean --yes --skip-archive --clean-before-timestamp "$before" \
    || echo "airflow db clean failed; it is tried again tomorrow" >&2
  find "$AIRFLOW__LOGGING__BASE_LOG_FOLDER" -type f -mtime "+$KEEP_DAYS" -delete
  find "$AIRFLOW__LOGGING__BASE_LOG_FOLDER" -mindepth 1 -type d -empty -mtime "+$KEEP_DAYS" -delete
  sleep 86400
done
