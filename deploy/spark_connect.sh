#!/bin/sh
# Runs spark-submit with the cluster's secret from the environment: in a file of our own, as a command line is public.
set -eu
umask 077
file=$(mktemp)
printf 'spark.authenticate true\nspark.authenticate.secret %s\n' "$_SPARK_AUTH_SECRET" > "$file"
exec spark-submit --properties-file "$file" "$@"
