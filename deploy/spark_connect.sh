#!/bin/sh
# Runs spark-submit with the cluster's secret from the environment, passed in a private file, as command lines are public.
set -eu
umask 077
file=$(mktemp)
printf 'spark.authenticate true\nspark.authenticate.secret %s\n' "$_SPARK_AUTH_SECRET" > "$file"
exec spark-submit --properties-file "$file" "$@"
